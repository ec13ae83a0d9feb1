"""What no server could have avoided to read: it looks at prompts alone, and knows no server.

[0 ··· shown by an earlier prompt or its reply ··· )[ ··· unavoidable ··· n)
"""

import numpy as np

from leftoff.cache.tree import common_prefix
from leftoff.types import Tokens


class Account:
    """Sums up the unavoidable over the prompts of one play, in the order in which they are asked."""

    def __init__(self) -> None:
        self.unavoidable = 0
        self._shown: list[Tokens] = []

    def ask(self, prompt: Tokens) -> int:
        """Counts a prompt; from now on it is shown. Prompts asked at the same time may share what is new in them."""
        num_new = int(prompt.size) - max((common_prefix(prompt, earlier) for earlier in self._shown), default=0)
        self.unavoidable += num_new
        self._shown.append(prompt)
        return num_new

    def show(self, prompt: Tokens, reply: Tokens) -> None:
        """What the model has read of its own words after a prompt."""
        self._shown.append(np.concatenate([prompt, reply]))
