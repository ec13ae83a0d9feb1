"""Admits requests, builds batches, owns the slots, streams tokens. Knows tokens, not text, and no HTTP."""
