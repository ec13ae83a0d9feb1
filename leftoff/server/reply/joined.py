"""One answer for several models: `?model=NAME` chooses one, without it all that are open are meant.

The answer has one shape. Of several models, lists stand one after the other, and each item says its model; numbers are
added; and `models` has what each model says for itself.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import astuple
from starlette.requests import Request

from leftoff.host.host import LOADING, ModelHost
from leftoff.server.hosts import Hosts

Result = TypeVar("Result")
Answer = dict[str, Any]

_TIERS = "tiers"  # a list in which each tier stands once, with the sums of all models


async def shown(hosts: Hosts, request: Request, show: Callable[[ModelHost], Awaitable[Answer]]) -> Answer:
    """What the models show that a request concerns. Looking at a model does not load it."""
    name = request.query_params.get("model")
    opened = hosts.opened(name)
    answers = await answers_of(opened, show)
    return next(iter(answers.values())) if hosts.has_one or name else joined(answers, budgets_of(opened))


async def answers_of(hosts: Sequence[ModelHost], show: Callable[[ModelHost], Awaitable[Result]]) -> dict[str, Result]:
    """The answers of all by their names. One that is being loaded is not waited for, unless there is no other."""
    asked = [host for host in hosts if host.status != LOADING] or hosts
    answers = await asyncio.gather(*map(show, asked))
    return {host.name: answer for host, answer in zip(asked, answers, strict=True)}


def budgets_of(hosts: Iterable[ModelHost]) -> Counter[str]:
    """The bytes that each tier may hold, by its name. What models share counts once."""
    distinct = {tier.budget.capacity: tier.budget for host in hosts for tier in host.cache.tiers}
    budgets = Counter[str]()
    for budget in distinct.values():
        budgets[budget.name] += budget.budget_bytes
    return budgets


def joined(answers: Mapping[str, Answer], budgets: Mapping[str, int]) -> Answer:
    """The answers of several models, by their names, as one."""
    own: dict[str, Answer] = {name: {} for name in answers}
    for name, answer in answers.items():
        for key, value in answer.items():
            if isinstance(value, list) and key != _TIERS:
                for item in value:
                    _mark(item, name)
            else:
                own[name][key] = value
    keys = {key: None for answer in answers.values() for key, value in answer.items() if not isinstance(value, str)}
    whole = {key: _added(key, [answer[key] for answer in answers.values()]) for key in keys}
    for tier in whole.get(_TIERS, ()):
        tier.budget_bytes = budgets[tier.name]
    return whole | ({"models": own} if any(own.values()) else {})


def _mark(item: Any, name: str) -> None:  # noqa: ANN401
    if isinstance(item, Struct):
        setattr(item, "model", name)  # noqa: B010  # a field of those that are shown in lists
    else:
        item["model"] = name


def _added(key: str, values: Sequence[Any]) -> Any:  # noqa: ANN401
    if key == _TIERS:
        return _added_tiers(chain(*values))
    if isinstance(values[0], list):
        return [*chain(*values)]
    if isinstance(values[0], dict):
        return {each: sum(value[each] for value in values) for each in values[0]}
    return sum(values)


def _added_tiers(tiers: Iterable[Any]) -> list[Any]:
    by_name: dict[str, list[Any]] = {}
    for tier in tiers:
        by_name.setdefault(tier.name, []).append(tier)
    return [
        type(same[0])(name, *map(_sum, zip(*(astuple(tier)[1:] for tier in same), strict=True)))
        for name, same in by_name.items()
    ]


def _sum(values: Iterable[Any]) -> Any:  # noqa: ANN401
    told = [value for value in values if value is not UNSET]
    return sum(told) if told else UNSET
