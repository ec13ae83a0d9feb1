"""Vectors and scores of texts, in the shapes of the servers that have them."""
