"""Plays traces of real traffic against the cache, and against models of other servers' caches. Runs no engine."""
