"""Compiles JSON schemas, grammars and regular expressions to token masks. Knows no chats and no HTTP."""
