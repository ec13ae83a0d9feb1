"""Runs the model on llama.cpp: decodes tokens, saves and loads memory. Knows nothing of caching or HTTP."""
