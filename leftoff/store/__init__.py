"""Many machines, one cache: the shared store below the disk tier, and what replicas tell each other and a router."""
