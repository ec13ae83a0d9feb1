"""Jinja chat templates: rendered in a sandbox under a budget, probed for their quirks, cut into message spans."""
