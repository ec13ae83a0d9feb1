"""Offline work on cache folders: list, verify, prune, export and import."""
