"""What a reply may say: schemas, grammars and patterns as masks over the tokens. Knows no chats and no HTTP."""
