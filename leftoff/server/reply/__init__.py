"""Replies in no dialect: token stream, parsed blocks, HTTP response, usage, read-ahead."""
