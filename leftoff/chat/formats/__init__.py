"""The text of a reply to what it says: words, reasoning and calls, one file per way to write them."""
