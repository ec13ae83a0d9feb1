"""Many machines, one cache: the shared store below the disk tier, and its index."""
