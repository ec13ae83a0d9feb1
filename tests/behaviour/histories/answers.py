"""What a server says to a step, and how far two of them are apart."""

from dataclasses import dataclass
from typing import Any

import httpx

from tests.behaviour.histories.tree import Step
from tests.server.wire import top_logprobs


@dataclass(frozen=True)
class Answer:
    """Tokens as they were chosen, with the log-probabilities of the likeliest at each place, to the last bit."""

    num_prompt: int
    num_cached: int
    text: str
    tokens: tuple[int, ...]
    top: tuple[dict[int, float], ...]


@dataclass(frozen=True)
class Told:
    step: Step
    answer: Answer


@dataclass(frozen=True)
class Gap:
    """Between two answers. After the first token that differs there is nothing to compare."""

    num_differing: int
    largest: float


def ask(http: httpx.Client, step: Step, salt: str | None = None) -> Answer | None:
    """None if it was left in the middle."""
    body = step.body | ({"cache_salt": salt} if salt else {})
    if step.is_left and salt is None:
        _leave(http, step.path, body)
        return None
    reply = http.post(step.path, json=body)
    assert reply.status_code == 200, f"{step.name}: {reply.text}"
    return _read(reply.json())


def gap(one: Answer, other: Answer) -> Gap:
    assert one.num_prompt == other.num_prompt, "not the same prompt"
    pairs = list(zip(one.tokens, other.tokens, strict=False))
    same = next((at for at, (left, right) in enumerate(pairs) if left != right), len(pairs))
    differing = len(one.tokens) != len(other.tokens) or same < len(pairs)
    places = range(min(same + 1, len(pairs)))
    return Gap(int(differing), max((_apart(one.top[at], other.top[at]) for at in places), default=0.0))


def _apart(one: dict[int, float], other: dict[int, float]) -> float:
    """Of the tokens that both name: which is the fifth likeliest may be a matter of rounding."""
    return max((abs(one[token] - other[token]) for token in one.keys() & other.keys()), default=0.0)


def _leave(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    body = {name: value for name, value in body.items() if name not in ("logprobs", "top_logprobs")}
    with http.stream("POST", path, json=body | {"stream": True, "max_tokens": 200, "n_predict": 200}) as reply:
        next(reply.iter_lines(), None)


def _read(reply: dict[str, Any]) -> Answer:
    if "choices" not in reply:
        places = reply.get("completion_probabilities", [])  # none if nothing was written
        return Answer(
            reply["tokens_evaluated"],
            reply["tokens_cached"],
            reply["content"],
            tuple(reply["tokens"]),
            top_logprobs(places),
        )
    (choice,), usage = reply["choices"], reply["usage"]
    places = choice["logprobs"]["content"] if choice["logprobs"] else []
    tokens = tuple(place["id"] for place in places)
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Answer(usage["prompt_tokens"], cached, choice["message"]["content"] or "", tokens, top_logprobs(places))
