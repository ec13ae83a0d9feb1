"""leftoff: an LLM server that picks up every prompt where it left off."""

import logging

__version__ = "0.1.0"

# A program that embeds leftoff decides what is shown; until it does, nothing is.
logging.getLogger(__name__).addHandler(logging.NullHandler())
