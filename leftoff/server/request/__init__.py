"""Requests in no dialect: fields, prompts, constraints, and the jobs built from them."""
