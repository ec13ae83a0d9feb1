"""How often a draft is right, by how many tokens before it are the same. Counted at every token of every reply."""

_PRIOR = (0.0, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 0.95)  # for matches of 0, 1, 2, 4, 8, 16, 32 and 64 tokens
_LONGEST = 64
_WEIGHT = 0.06  # of the newest token, about the last sixteen count


class Odds:
    """Chances that the next token of a match is right. Those of a reply begin with those of all."""

    def __init__(self, of_all: "Odds | None" = None) -> None:
        self._of_all = of_all
        self._chances: list[float] = [*(_PRIOR if of_all is None else of_all._chances)]

    def chance(self, length: int) -> float:
        """Of the token that follows a match of `length` tokens."""
        return self._chances[length.bit_length() if length < _LONGEST else -1]

    def saw(self, length: int, *, is_right: bool) -> None:
        index = length.bit_length() if length < _LONGEST else -1
        self._chances[index] += _WEIGHT * (is_right - self._chances[index])
        if self._of_all is not None:
            self._of_all.saw(length, is_right=is_right)
