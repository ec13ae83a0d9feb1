"""Many replicas under one trace: routers to compare, over caches that share a store or share nothing."""
