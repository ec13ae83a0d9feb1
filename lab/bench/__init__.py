"""Plays what clients do against servers, side by side, and counts what they read: tables, plots, no opinions."""
