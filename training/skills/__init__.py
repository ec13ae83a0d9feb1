"""What the model learns, one skill per file. Each says in its docstring what it teaches."""
