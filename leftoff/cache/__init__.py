"""The prompt cache: a tree of snapshots and shared pages with byte budgets. Knows no model, no llama.cpp, no HTTP."""
