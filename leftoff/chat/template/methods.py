"""The methods and attributes that templates may use, and what a method costs before it is called.

Afterwards would be too late: one call of `ljust` could fill the memory, one of `rfind` could take days.
"""

from collections.abc import Callable
from types import BuiltinMethodType
from typing import Any

from jinja2.runtime import BlockReference, LoopContext, Macro, TemplateReference, Undefined
from jinja2.utils import Cycler

from leftoff.chat.template.budget import Budget

_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_PART = 64  # a string that is cut out of another takes as much memory as so many characters, and its own
_STEPS = 16  # steps of a search that take as long as one character
_SEARCHES = ("rfind", "rindex", "rsplit", "rpartition")  # letter by letter, for every place they could begin

_STR = frozenset(
    (
        *("capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find", "format", "format_map"),
        *("index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace"),
        *("istitle", "isupper", "join", "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix"),
        *("replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split", "splitlines"),
        *("startswith", "strip", "swapcase", "title", "upper", "zfill"),
    )
)
LIST_CHANGES = frozenset({"append", "extend", "insert", "pop"})  # some templates keep lists of their own
_LOOP = frozenset(
    (
        *("cycle", "depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem"),
        *("revindex", "revindex0"),
    )
)
_ALLOWED: dict[type, frozenset[str]] = {
    str: _STR,
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index", "grouper", "list"}),  # the last two are what `groupby` gives
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    LoopContext: _LOOP,
    Cycler: frozenset({"current", "next", "reset"}),
    Macro: frozenset({"arguments", "name"}),
    BlockReference: frozenset({"super"}),
}
_OWN_RULES = (Undefined, TemplateReference)  # the one has no attributes, the other a template's blocks


def is_allowed(owner: object, name: str) -> bool:
    """Of values and of what Jinja itself provides. Nothing else has attributes: no function, class or generator."""
    if isinstance(owner, _OWN_RULES):
        return not name.startswith("_")
    allowed = next((_ALLOWED[kind] for kind in type(owner).__mro__ if kind in _ALLOWED), ())
    return name in allowed


def charge_method(budget: Budget, method: BuiltinMethodType, args: list[Any], kwargs: dict[str, Any]) -> None:
    """May put a list in place of what can be read only once."""
    owner, name = method.__self__, method.__name__
    if isinstance(owner, str):
        if name == "join" and args:
            args[0] = budget.listed(args[0])
            budget.charge_deep(args[0])
            budget.charge(len(owner) * len(args[0]))
        elif name in _COSTS:
            budget.charge(_COSTS[name](owner, *args, **kwargs))
    elif name in ("append", "insert"):
        budget.charge_deep(args)
    elif name == "extend" and args:
        args[0] = budget.listed(args[0])
    elif name in ("count", "index"):
        budget.charge_deep(owner)


def replaced_cost(text: str, old: object = "", new: object = "", *_count: object) -> int:
    return len(text) + text.count(str(old)) * len(str(new))


def _wide(text: str, width: object = 0, *_fill: object) -> int:
    return max(len(text), width) if isinstance(width, int) else 0


def _tabs(text: str, tabsize: object = 8) -> int:
    return len(text) + text.count("\t") * tabsize if isinstance(tabsize, int) else 0


def _in_parts(text: str, sep: object = None, *_most: object, **_named: object) -> int:
    sep = _named.get("sep", sep)
    num_parts = text.count(sep) if isinstance(sep, str) and sep else len(text) // 4
    return len(text) + _PART * num_parts


def _in_lines(text: str, *_keep: object, **_named: object) -> int:
    return len(text) + _PART * sum(map(text.count, _LINE_ENDS))


def _from_the_end(text: str, sought: object = None, *_more: object, **_named: object) -> int:
    sought = _named.get("sep", sought)
    return len(text) * len(sought) // _STEPS if isinstance(sought, str) else 0


def _case(text: str) -> int:
    return 2 * len(text)  # a letter may become three


_COSTS: dict[str, Callable[..., int]] = {
    "replace": replaced_cost,
    **dict.fromkeys(("ljust", "rjust", "center", "zfill"), _wide),
    "expandtabs": _tabs,
    "split": _in_parts,
    "splitlines": _in_lines,
    **dict.fromkeys(_SEARCHES, _from_the_end),
    "rsplit": lambda *args, **kwargs: _in_parts(*args, **kwargs) + _from_the_end(*args, **kwargs),
    **dict.fromkeys(("upper", "lower", "title", "capitalize", "casefold", "swapcase"), _case),
}
