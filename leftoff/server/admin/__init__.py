"""Our own routes: cache, prewarm, metrics, reuse reports."""
