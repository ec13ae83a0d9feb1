"""Plays random histories to a server that is restarted in between: every answer is held against one that never left."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import httpx

from tests.behaviour.histories.answers import Answer, Gap, Told, ask, gap
from tests.behaviour.histories.batch_noise import batch_noise
from tests.behaviour.histories.lives import Lives, never_left, with_neighbours
from tests.behaviour.histories.tree import Sizes, Step, Tree

_STEPS_PER_LIFE = 25
_STEPS_PER_NOISE = 3  # the largest of many differences is compared with the largest of so many times fewer
_STEPS_PER_WRITTEN = 10
_MIN_WRITTEN = 1
_BATCH_PROMPTS = 30
_NOISY_TOKENS = 560  # from 512 cells on, threads part the cells among them


_LAST_BITS = 1e-5  # of a log-probability made of logits with 24 bits


@dataclass
class Tally:
    steps: Counter[str] = field(default_factory=Counter)
    num_lives: int = 0
    num_left: int = 0
    num_prompt: int = 0
    num_cached: int = 0
    num_tokens: int = 0
    num_differing: int = 0
    largest: float = 0.0
    noise: float | None = None
    num_pictures: int = 0
    num_pictures_reused: int = 0

    @property
    def is_within_noise(self) -> bool:
        """Twice of it, since it was measured on fewer prompts. Where there is none, no reply may differ.

        With several threads the last bits of a logit may: which thread adds what is a matter of time.
        """
        allowed = 0.0 if self.noise is None else max(2 * self.noise, _LAST_BITS)
        return self.largest <= allowed and (bool(self.noise) or self.num_differing == 0)

    def add(self, found: Gap) -> None:
        self.num_differing += found.num_differing
        self.largest = max(self.largest, found.largest)

    def saw_pictures(self, http: httpx.Client) -> None:
        """Of the last request, by its report."""
        (record,) = http.get("/cache/requests?n=1").json()["requests"]
        self.num_pictures += len(record["images"])
        self.num_pictures_reused += sum(line.endswith("reused") for line in record["images"])

    def see_noise(self, noises: Iterator[float]) -> None:
        """As much as explains what differs: more of it would change nothing."""
        while not self.is_within_noise and (noise := next(noises, None)) is not None:
            self.noise = max(self.noise or 0.0, noise)

    def __str__(self) -> str:
        steps = ", ".join(f"{count} {name}" for name, count in self.steps.most_common())
        noise = "" if self.noise is None else f"; what cannot be helped makes {self.noise:.7f}"
        pictures = f", {self.num_pictures_reused} of {self.num_pictures} pictures" if self.num_pictures else ""
        return (
            f"{self.steps.total()} histories ({steps}) in {self.num_lives} lives, {self.num_left} left in the middle\n"
            f"{self.num_cached} of {self.num_prompt} prompt tokens{pictures} reused, {self.num_tokens} tokens written\n"
            f"{self.num_differing} replies differ, largest difference of a log-probability {self.largest:.7f}{noise}"
        )


def play(
    model: Path,
    folder: Path,
    num_steps: int,
    seed: int,
    flags: Sequence[str],
    *,
    is_slow: bool = False,
    measures_noise: bool = False,
    drafts: bool = False,
    pictures: bool = False,
    progress: Callable[[Tally], None] = lambda _: None,
    steps_per_life: int = _STEPS_PER_LIFE,
) -> Tally:
    """Of a slow model the prompts are shorter. With drafts it drafts whatever it finds; the measure never does."""
    tally = Tally()
    told: list[Told] = []
    is_last = num_steps < steps_per_life
    with (
        never_left(model, flags) as cold,
        Lives(model, folder, seed, flags, is_last=is_last, drafts=drafts) as lives,
    ):
        sizes, with_chat = sizes_for(cold, is_slow=is_slow), has_chat(cold)
        tree = Tree(seed, sizes, with_chat=with_chat, with_pictures=pictures)
        while tally.steps.total() < num_steps:
            if (tally.steps.total() + tally.num_left) % steps_per_life == steps_per_life - 1:
                progress(tally)
                lives.begin(is_last=num_steps - tally.steps.total() <= steps_per_life)
            step = tree.next()
            answer = ask(lives.http, step)
            if answer is None:
                tally.num_left += 1
                continue
            tree.answered(answer.tokens, answer.text)
            expected = ask_anew(cold, step, f"{seed}-{tally.steps.total()}")
            assert expected.num_cached == 0, "the measure must not know anything"
            tally.add(gap(answer, expected))
            tally.steps[step.name] += 1
            if tally.steps.total() % _STEPS_PER_NOISE == 0:
                told.append(Told(step, expected))
            tally.num_prompt += answer.num_prompt
            tally.num_cached += answer.num_cached
            if pictures:
                tally.saw_pictures(lives.http)
            tally.num_tokens += len(answer.tokens)
        tally.num_lives = lives.num_lives
        if measures_noise and drafts:
            tally.see_noise(batch_noise(model, min(num_steps, _BATCH_PROMPTS), seed))
        if measures_noise and not tally.is_within_noise:
            with with_neighbours(model, flags) as crowded:
                written = _written(cold, crowded, Tree(seed + 1, sizes, with_chat=False), num_steps)
                tally.see_noise(chain(_beside(crowded, told), written))
    return tally


def _beside(crowded: httpx.Client, told: Sequence[Told]) -> Iterator[float]:
    """What idle neighbours do to answers."""
    for number, one in enumerate(told):
        yield gap(ask_anew(crowded, one.step, f"again {number}"), one.answer).largest


def _written(cold: httpx.Client, crowded: httpx.Client, tree: Tree, num_steps: int) -> Iterator[float]:
    """What cannot be helped, on prompts that nobody has resumed.

    One is that tokens were written instead of read: the same by one call of llama.cpp each, instead of by one for all.
    The other is that idle neighbours lie in the engine.
    """
    for number in range(max(_MIN_WRITTEN, num_steps // _STEPS_PER_WRITTEN)):
        step = tree.next()
        step = replace(step, body=step.body | {"prompt": (_NOISY_TOKENS * step.body["prompt"])[:_NOISY_TOKENS]})
        written = ask_anew(cold, step, f"written {number}")
        tree.answered(written.tokens, written.text)
        grown = replace(step, body=step.body | {"prompt": [*step.body["prompt"], *written.tokens, 1, 2, 3]})
        alone = ask_anew(cold, grown, f"alone {number}")
        yield gap(ask_anew(cold, grown, f"written {number}"), alone).largest
        yield gap(ask_anew(crowded, grown, f"beside {number}"), alone).largest


def ask_anew(http: httpx.Client, step: Step, salt: str) -> Answer:
    """On a server that knows nothing under this salt, and from which the client does not hang up."""
    answer = ask(http, step, salt=salt)
    assert answer is not None
    return answer


def sizes_for(http: httpx.Client, *, is_slow: bool) -> Sizes:
    (model,) = http.get("/v1/models").json()["data"]
    num_vocabulary = min(int(model["meta"]["n_vocab"]), 8000)
    if is_slow:
        return Sizes(num_vocabulary, longest_turn=12, longest_header=70, longest_prompt=200)
    return Sizes(num_vocabulary)


def has_chat(http: httpx.Client) -> bool:
    body = {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}], "max_tokens": 1}
    return http.post("/v1/chat/completions", json=body).status_code == 200
