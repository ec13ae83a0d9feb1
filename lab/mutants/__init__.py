"""`make mutants` changes the code in one place at a time, and counts the changes that no test finds.

1. `change.py` lists what can be changed: an operator, a bound, or a statement. A seed picks a sample of it.
2. `covering.py` runs the tests once, and notes which of them run which lines and how long each takes.
3. `judge.py` gives each change to a process of its own, forked from one that has imported every library but ours. It
   runs the tests that cover the changed lines, the quickest first, until one fails or time is up.
4. `equivalent.txt` names changes that make no difference that a test could see, each with the reason.

Why no library does it: mutmut forks from a process that has run the tests, in which llama.cpp has started threads that
a fork does not have, and it leaves decorated functions alone. cosmic-ray starts an interpreter and all tests for each
change. Neither draws a sample.
"""
