"""Pictures for a model: a projector file turns pixels into embeddings that the model reads instead of tokens."""
