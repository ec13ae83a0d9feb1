"""`leftoff demo` plays scripted conversations with the cache off and on."""

from leftoff.cli.demo.command import add_parser, run

__all__ = ["add_parser", "run"]
