"""How long a test waits for what must come.

Only a hang takes this long. How fast things are is no matter of the tests: the machine may be busy with something else.
"""

PATIENCE_S = 300.0
