"""What comes back, in no dialect: the token stream of a reply, the HTTP response around it, usage, read-ahead."""
