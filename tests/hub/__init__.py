"""Models by name."""
