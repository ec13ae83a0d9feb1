"""The proof that sampled replies with drafts follow the model's own distribution.

    python -m tests.drafts.distribution 20000 [--source model]

Each token of a reply at temperature 1 is placed in the cumulative distribution of its own logits, the likeliest first,
at a random point of its own share. If it was drawn from that distribution the place is uniform, whatever the
distribution is, and so are the places of all tokens: chi-squared tells.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from leftoff.cache.cache import Cache
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.sampler import log_probabilities
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Logits, Prompt
from tests.drafts.sources import SOURCES, default_for, drafter_of, model_settings
from tests.scheduler.recorder import Recorder, run

NUM_BINS = 20
# What chi-squared with 19 degrees of freedom exceeds once in 10,000 times.
LARGEST = 51.0
REPLY_TOKENS = 100
_MOST_DRAFTED = 4  # at temperature 1, the tokens after a few guesses are hardly ever right
_TEXT = "An old man keeps a lamp in his window. Where does the road end? It ends at the sea, where the boats are. "


@dataclass
class Placing(Recorder):
    """Places each token in its distribution."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    places: list[float] = field(default_factory=list)

    def token(self, token: int, logits: Logits | None) -> bool:
        assert logits is not None
        chances = np.exp(log_probabilities(logits))
        own = chances[token]
        likelier = chances[chances > own].sum() + chances[:token][chances[:token] == own].sum()
        self.places.append(float(likelier + self.rng.random() * own))
        self.tokens.append(token)
        return True


@dataclass(frozen=True)
class Sampled:
    """The places of all tokens, and how many were drafted and accepted."""

    places: Sequence[float]
    num_drafted: int
    num_accepted: int

    @property
    def chi_squared(self) -> float:
        counts, _ = np.histogram(self.places, NUM_BINS, (0.0, 1.0))
        expected = len(self.places) / NUM_BINS
        return float(((counts - expected) ** 2 / expected).sum())


def sample(model: Path, num_tokens: int, source: str = "", seed: int = 0) -> Sampled:
    """Without a source, there are no drafts."""
    settings = ContextSettings(num_cells=4096, num_sequences=1, threads=1)
    places: list[float] = []
    num_drafted = num_accepted = 0
    with LlamaEngine.open(model, settings, model_settings=model_settings(source)) as engine:
        cache = Cache(engine.memory, num_slots=1, budget_bytes=1 << 28)
        scheduler = Scheduler(
            engine, cache, drafter=drafter_of(source, engine, cache, _MOST_DRAFTED) if source else None
        )
        vocabulary, number = engine.model.vocabulary, 0
        while len(places) < num_tokens:
            number += 1
            prompt = vocabulary.tokenize(_TEXT * (2 + number % 5))[: 60 + number % 40]
            sink = Placing(rng=np.random.default_rng([seed, number]))
            sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1000 * seed + number)
            job = Job(Prompt(prompt), sampling, REPLY_TOKENS, wants_logits=True, ignore_end=True)
            one = Run(job, sink)
            scheduler.submit(one)
            run(scheduler)
            places += sink.places
            num_drafted += one.timings.num_drafted
            num_accepted += one.timings.num_accepted
    return Sampled(places, num_drafted, num_accepted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("num_tokens", type=int)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--source", choices=SOURCES, default="tree")
    arguments = parser.parse_args()
    worst = 0.0
    path = arguments.model or default_for(arguments.source)
    for source in ("", arguments.source):
        sampled = sample(path, arguments.num_tokens, source)
        worst = max(worst, sampled.chi_squared)
        how = f"{sampled.num_accepted} of {sampled.num_drafted} drafted accepted" if source else "no drafts"
        print(f"{len(sampled.places)} tokens, {how}: chi-squared {sampled.chi_squared:.1f} (at most {LARGEST})")
    return int(worst > LARGEST)


if __name__ == "__main__":
    sys.exit(main())
