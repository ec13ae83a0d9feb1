"""How much is written to the disk tier for what is kept there: four conversations in turn on a disk for three of them.

Each turn adds tokens to one conversation; after the last turn the server is restarted, and what it would read again of
each is counted. With a model of attention alone, a hybrid and one with a sliding window; with more RAM than disk, and
with less. Written must be at most 1.5 times the largest number of bytes kept at one time.
"""

import argparse
import tempfile
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table

from leftoff.config import Settings
from leftoff.engine.model import Model
from leftoff.host.build import make_scheduler
from leftoff.scheduler.job import Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt, Tokens
from tests.factory import model_path
from tests.scheduler.recorder import Recorder, run

_MODELS = {"dense": "llama", "hybrid": "qwen35", "window": "gemma3"}
_NUM_CHATS, _ON_DISK = 4, 3.0
_PATIENCE_S = 60.0
_SLOW = 1e-3  # tokens per ms: a tiny model reads faster than a disk


@dataclass(frozen=True)
class Play:
    """What is played: how long the conversations are in the end, and in how many turns they come to that."""

    model: str
    num_tokens: int
    num_turns: int
    ram_of_disk: float

    @property
    def turn_tokens(self) -> int:
        return self.num_tokens // self.num_turns


@dataclass(frozen=True)
class Worn:
    """What a play has written and left."""

    written_bytes: int
    most_bytes: int
    num_evictions: int
    num_entries: int
    prompt_tokens: int  # of the prompts after the restart
    read_again: int  # of these, tokens that were read before

    @property
    def ratio(self) -> float:
        return self.written_bytes / self.most_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2048, help="of each conversation in the end")
    parser.add_argument("--turns", type=int, default=12, help="of each conversation")
    parser.add_argument("--models", default=",".join(_MODELS))
    args = parser.parse_args()
    table = Table("model", "RAM", "written MB", "most kept MB", "ratio", "evictions", "left", "read again")
    for name in args.models.split(","):
        for share in (2.0, 0.5):
            worn = play(Play(_MODELS[name], args.tokens, args.turns, share))
            table.add_row(
                *(name, f"{share:g} x disk", f"{worn.written_bytes / 1e6:.1f}", f"{worn.most_bytes / 1e6:.1f}"),
                *(f"{worn.ratio:.2f}", f"{worn.num_evictions:,}", f"{worn.num_entries:,}"),
                f"{worn.read_again:,} of {worn.prompt_tokens:,}",
            )
    Console().print(table)


def play(game: Play) -> Worn:
    """All turns, a restart, and one turn more of each conversation."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            model=str(model_path(game.model)),
            cache_dir=folder,
            slots=1,
            parked=0,
            threads=1,
            draft="off",
            ctx=game.num_tokens + 1024,
            ram=64,
            disk=64,
            log_level="error",
        )
        first = _opened(settings, game)
        told = _talk(first, game)
        assert first.cache.disk is not None
        budget = first.cache.disk.budget
        first.cache.close(_PATIENCE_S)
        worn = Worn(
            first.cache.disk.blobs.written_bytes, budget.most_bytes, budget.num_evictions, budget.num_points, 0, 0
        )
        first.engine.close()
        second = _opened(settings, game)
        read = [_lacking(second, tokens) for tokens in told]
        second.cache.close(_PATIENCE_S)
        second.engine.close()
    return replace(worn, prompt_tokens=sum(tokens.size for tokens in told), read_again=sum(read))


def _opened(settings: Settings, game: Play) -> Scheduler:
    """A scheduler whose disk holds three of the conversations: settings count in MiB, and tiny models do not."""
    scheduler = make_scheduler(Model(settings.model), settings)
    cache, memory = scheduler.cache, scheduler.engine.memory
    assert cache.disk is not None
    snapshot_bytes = memory.snapshot_bytes(game.num_tokens) if memory.kind.has_snapshots else 0
    one_bytes = memory.page_bytes(game.num_tokens) + 2 * snapshot_bytes
    cache.disk.budget.capacity.nbytes = int(_ON_DISK * one_bytes)
    cache.ram.budget.capacity.nbytes = int(game.ram_of_disk * _ON_DISK * one_bytes)
    return scheduler


def _talk(scheduler: Scheduler, game: Play) -> list[Tokens]:
    rng = np.random.default_rng(0)
    size = scheduler.engine.model.vocabulary.size
    chats = [np.empty(0, np.int32) for _ in range(_NUM_CHATS)]
    for _ in range(game.num_turns):
        for index, told in enumerate(chats):
            chats[index] = np.concatenate([told, rng.integers(size // 2, size, game.turn_tokens, np.int32)])
            _ask(scheduler, chats[index])
    return chats


def _lacking(scheduler: Scheduler, tokens: Tokens) -> int:
    """How many tokens of the prompt are not found on disk, by a plan that would rather wait than read."""
    scheduler.cache.costs.prefill_tokens_per_ms = _SLOW
    return int(tokens.size) - scheduler.cache.plan(Prompt(tokens)).resume


def _ask(scheduler: Scheduler, tokens: Tokens) -> int:
    """How many tokens of the prompt were read."""
    recorder = Recorder()
    scheduler.submit(Run(Job(Prompt(tokens), max_tokens=1), recorder))
    run(scheduler)
    scheduler.cache.save_idle()
    assert recorder.report is not None
    return recorder.report.computed


if __name__ == "__main__":
    main()
