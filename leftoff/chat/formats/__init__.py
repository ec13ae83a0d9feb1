"""Parses the text of replies into content, reasoning and tool calls: one file per model family."""
