"""The text that `leftoff demo` has the model read: a hotel's guest list, as long as one likes."""

from collections.abc import Iterator

_GIVEN = ["Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Kate", "Leo"]
_BEGINNINGS = ["Ash", "Brook", "Cran", "Dun", "East", "Fair", "Green", "Hart", "King", "Lang", "Mill", "North"]
_ENDINGS = ["bury", "field", "ford", "ham", "ley", "mere", "ridge", "stone", "ton", "wick", "wood", "worth"]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

MAX_GUESTS = len(_BEGINNINGS) * len(_ENDINGS)


def guest_list(num_guests: int, intro: str) -> str:
    """A system prompt: some 27 tokens for each guest."""
    return "\n".join([intro, "", *(line for line, _ in zip(_lines(), range(num_guests), strict=False))])


def _lines() -> Iterator[str]:
    """Every surname and every room once; the steps have no factor in common with what they count around."""
    for index in range(MAX_GUESTS):
        beginning, ending = divmod(index, len(_ENDINGS))
        given = _GIVEN[(5 * beginning + 7 * ending) % len(_GIVEN)]
        guest = f"{given} {_BEGINNINGS[beginning]}{_ENDINGS[ending]}"
        room, phone = 101 + index * 617 % 898, 1009 + index * 7919 % 8990
        yield f"guest: {guest}; room: {room}; check-out: {_DAYS[index * 5 % 7]}; phone: {phone}"
