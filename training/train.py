"""Trains the model within a time limit on one GPU.

python -m training.train --minutes 9.5 --out OUT

Writes OUT/checkpoint.npz and OUT/leftoff-tiny-q8_0.gguf. Text is made by worker processes, while kernels compile and
while training runs. Without a GPU it runs too, for trying things out: see --steps and --micro.
"""

import argparse
import os
import time
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training import corpus, kernels
from training.convert import convert
from training.corpus import Preparation
from training.gguf import Floats
from training.model import Model
from training.optimiser import Optimiser
from training.shape import MICRO, Shape
from training.supply import Supply

_WEIGHTS = (0.0, 0.2, 1.0)  # of corpus.IGNORED, READ and SAID
_WARM_UP = 100  # steps
_DECAY = 0.45  # of the time: the learning rate falls to the end
_SAVING = 12.0  # seconds
_REPORT_EVERY = 50  # steps
_WORKERS = 5 / 8  # of the cores: the others compile


@dataclass(frozen=True)
class Settings:
    minutes: float
    out: Path
    seed: int = 1
    batch: int = 16
    length: int = 4096
    num_generated: int = 600_000
    real_share: float = 1.0
    max_steps: int | None = None
    start: Path | None = None
    rate: float = 1.0
    shape: Shape = Shape()  # noqa: RUF009


class Clock:
    """Says how much of the time is gone: everything since the start counts."""

    def __init__(self, minutes: float, max_steps: int | None) -> None:
        self._start, self._seconds, self._max_steps = time.monotonic(), minutes * 60 - _SAVING, max_steps
        self._begin = self._start

    @property
    def now(self) -> float:
        return time.monotonic() - self._start

    def begin(self) -> None:
        """Training begins: what came before was preparation."""
        self._begin = time.monotonic()

    def progress(self, step: int) -> float:
        """From 0 to 1, by the time or by the steps, whichever is nearer to its end."""
        by_time = (time.monotonic() - self._begin) / (self._start + self._seconds - self._begin)
        return max(by_time, step / self._max_steps if self._max_steps else 0.0)


def train(settings: Settings) -> Model:
    clock = Clock(settings.minutes, settings.max_steps)
    work = corpus.jobs(settings.length + 1, settings.seed, settings.num_generated, settings.real_share)
    # The workers are forked here, before the GPU is touched.
    with Preparation(work, max(1, int((os.cpu_count() or 2) * _WORKERS))) as preparation:
        model = _make_model(settings)
        _log(clock, f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters on {_device()}")
        _compile(model, settings)
        _log(clock, "kernels are ready")
        if settings.start:
            _load(model, settings.start)
        clock.begin()
        _run(model, preparation, settings, clock)
    return model


def learning_rate(step: int, progress: float) -> float:
    return min(1.0, (step + 1) / _WARM_UP) * min(1.0, max(0.02, (1 - progress) / _DECAY))


def parameters(model: Model) -> dict[str, Floats]:
    return {name: parameter.detach().float().cpu().numpy() for name, parameter in model.named_parameters()}


def _run(model: Model, preparation: Preparation, settings: Settings, clock: Clock) -> None:
    optimiser, scale = Optimiser(model), torch.tensor(_WEIGHTS, device=_device())
    supply = Supply(settings.seed)
    supply.add(preparation.wait())
    losses: list[Tensor] = []
    for step in count():
        progress = clock.progress(step)
        if progress >= 1:
            break
        if not losses:
            for rows in preparation.ready():
                supply.add(rows)
        batch = supply.batch(settings.batch)
        loss = model.loss(_on_device(batch.tokens), scale[_on_device(batch.weights)])
        loss.backward()
        optimiser.step(settings.rate * learning_rate(step, progress))
        model.zero_grad()
        losses.append(loss.detach())
        if len(losses) == _REPORT_EVERY:
            seen, made = (num * settings.length / 1e6 for num in ((step + 1) * settings.batch, supply.num_rows))
            mean = torch.stack(losses).mean().item()
            _log(clock, f"step {step + 1}  loss {mean:.4f}  {seen:.1f}M tokens; {made:.1f}M are made")
            losses.clear()


def _on_device(numbers: npt.NDArray[np.integer]) -> Tensor:
    """As indices, without waiting for what the GPU is doing."""
    indices = torch.from_numpy(numbers.astype(np.int64))
    return indices.pin_memory().to("cuda", non_blocking=True) if _device() == "cuda" else indices


def _make_model(settings: Settings) -> Model:
    torch.manual_seed(settings.seed)
    torch.set_float32_matmul_precision("high")
    if _device() == "cpu":
        return Model(settings.shape, kernels.plain())
    model = Model(settings.shape, kernels.fast(settings.batch, settings.length), torch.bfloat16)
    model.to("cuda")
    return model


def _load(model: Model, checkpoint: Path) -> None:
    with np.load(checkpoint) as saved:
        model.load_state_dict({name: torch.from_numpy(saved[name]).float() for name in saved.files})


def _compile(model: Model, settings: Settings) -> None:
    """One pass over nothing in particular, so that compiling does not wait for the text."""
    if _device() == "cuda":
        rows = torch.randint(0, 8000, (settings.batch, settings.length + 1), device="cuda")
        for _ in range(2):
            model.loss(rows, torch.ones_like(rows, dtype=torch.float32)).backward()
            model.zero_grad()
        torch.cuda.synchronize()


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _log(clock: Clock, text: str) -> None:
    print(f"[{clock.now:6.1f} s] {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train leftoff-tiny.")
    parser.add_argument("--minutes", type=float, default=9.5, help="for everything, preparation included")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the results")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--documents", type=int, default=600_000, help="how many conversations to make up")
    parser.add_argument("--steps", type=int, help="stop after so many, if the time is not up before")
    parser.add_argument("--start", type=Path, help="go on from a checkpoint.npz")
    parser.add_argument("--rate", type=float, default=1.0, help="scales the learning rate: below 1 to go on gently")
    parser.add_argument("--micro", action="store_true", help="a model and a batch for a CPU")
    options = parser.parse_args()
    settings = Settings(
        options.minutes,
        options.out,
        options.seed,
        num_generated=options.documents,
        max_steps=options.steps,
        start=options.start,
        rate=options.rate,
    )
    if options.micro:
        settings = replace(settings, batch=2, length=512, real_share=0.01, shape=MICRO)
    model = train(settings)
    settings.out.mkdir(parents=True, exist_ok=True)
    trained = parameters(model)
    np.savez(settings.out / "checkpoint.npz", allow_pickle=False, **trained)
    convert(trained, settings.shape, settings.out / "leftoff-tiny-q8_0.gguf")


if __name__ == "__main__":
    main()
