"""The recipe of leftoff-tiny: from text to a GGUF file. `README.md` beside this says how to run it."""
