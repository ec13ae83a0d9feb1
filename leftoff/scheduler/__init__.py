"""Admits jobs to slots, builds batches, samples tokens, owns the engine's thread. Knows tokens, not text or HTTP."""
