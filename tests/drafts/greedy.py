"""The proof that greedy replies are the same with and without drafts.

    python -m tests.drafts.greedy 100 [--source model]

Logits may differ in their last bits by how many tokens are computed together. So a position may differ where the two
likeliest tokens are closer than that, which is measured in the same run; such ties are counted.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from leftoff.cache.cache import Cache
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.model import Model
from leftoff.scheduler.job import Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Logits, Prompt, Tokens
from tests.drafts.sources import SOURCES, default_for, drafter_of, model_settings
from tests.scheduler.recorder import Recorder, run

MAX_TIES = 0.005
_ROOT = Path(__file__).parents[2]
_TOP = 5


@dataclass
class Tally:
    num_positions: int = 0
    num_ties: int = 0
    num_accepted: int = 0
    noise: float = 0.0  # the largest difference of a likely token's logit where both replies are still the same
    widest: float = 0.0  # by how much the two tokens of a tie differ without drafts

    @property
    def is_right(self) -> bool:
        return self.num_ties <= MAX_TIES * self.num_positions and self.widest <= 2 * self.noise

    def __str__(self) -> str:
        return (
            f"{self.num_positions} positions, {self.num_accepted} of them drafted and right; {self.num_ties} ties, "
            f"which differ by at most {self.widest:.6f}, where computing tokens together makes {self.noise:.6f}"
        )

    def add(self, plain: Recorder, drafted: Recorder) -> None:
        for token, other, logits, other_logits in zip(
            plain.tokens, drafted.tokens, plain.logits, drafted.logits, strict=True
        ):
            self.num_positions += 1
            top = np.argsort(logits)[-_TOP:]
            if token != other:
                self.num_ties += 1
                self.widest = max(self.widest, float(logits[token] - logits[other]))
                return  # from here on the replies are those to different texts
            self.noise = max(self.noise, _apart(logits, other_logits, top))


def _apart(one: Logits, other: Logits, top: np.ndarray) -> float:
    """How much the differences between likely tokens differ: what is added to all of them changes nothing."""
    return float(np.ptp(one[top] - other[top]))


def compare(path: Path, num_prompts: int, reply_tokens: int, seed: int = 0, source: str = "tree") -> Tally:
    tally, rng = Tally(), np.random.default_rng(seed)
    model = Model(path, model_settings(source))
    settings = ContextSettings(num_cells=2048, num_sequences=1, threads=1)
    engines = [LlamaEngine(model, settings) for _ in range(2)]
    engines[0].close_head()
    caches = [Cache(engine.memory, num_slots=1, budget_bytes=1 << 28) for engine in engines]
    drafters = (None, drafter_of(source, engines[1], caches[1]))
    schedulers = [
        Scheduler(engine, cache, drafter=drafter)
        for engine, cache, drafter in zip(engines, caches, drafters, strict=True)
    ]
    text = model.vocabulary.tokenize((_ROOT / "docs" / "memory.md").read_text() + (_ROOT / "README.md").read_text())
    for _ in range(num_prompts):
        start, length = rng.integers(text.size - 300), rng.integers(40, 300)
        plain, drafted = (_reply(scheduler, text[start : start + length], reply_tokens) for scheduler in schedulers)
        tally.add(plain[0], drafted[0])
        tally.num_accepted += drafted[1].timings.num_accepted
    engines[0].context.close()
    engines[1].close()
    return tally


def _reply(scheduler: Scheduler, prompt: Tokens, max_tokens: int) -> tuple[Recorder, Run]:
    recorder = Recorder()
    one = Run(Job(Prompt(prompt), max_tokens=max_tokens, wants_logits=True, ignore_end=True), recorder)
    scheduler.submit(one)
    run(scheduler)
    return recorder, one


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("num_prompts", type=int)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--source", choices=SOURCES, default="tree")
    arguments = parser.parse_args()
    path = arguments.model or default_for(arguments.source)
    tally = compare(path, arguments.num_prompts, reply_tokens=120, source=arguments.source)
    print(tally)
    return int(not tally.is_right)


if __name__ == "__main__":
    sys.exit(main())
