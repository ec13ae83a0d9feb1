"""Trains the model within a time limit on one GPU.

python -m training.train --minutes 9.5 --out OUT

Writes OUT/checkpoint.npz and OUT/leftoff-tiny-q8_0.gguf. Text is made by worker processes while kernels compile.
Without a GPU it runs too, for trying things out: see --steps and --micro.
"""

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training import corpus, kernels
from training.convert import convert
from training.corpus import Rows
from training.gguf import Floats
from training.model import Model
from training.optimiser import Optimiser
from training.shape import MICRO, Shape

_WEIGHTS = (0.0, 0.2, 1.0)  # of corpus.IGNORED, READ and SAID
_WARM_UP = 100  # steps
_DECAY = 0.45  # of the time: the learning rate falls to the end
_SAVING = 12.0  # seconds
_REPORT_EVERY = 50  # steps


@dataclass(frozen=True)
class Settings:
    minutes: float
    out: Path
    seed: int = 1
    batch: int = 16
    length: int = 4096
    num_generated: int = 350_000
    real_share: float = 1.0
    max_steps: int | None = None
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
    jobs = corpus.jobs(settings.length + 1, settings.seed, settings.num_generated, settings.real_share)
    made = corpus.prepare(jobs, max(1, (os.cpu_count() or 2) - 2))
    first = next(made)  # the workers are forked here, before the GPU is touched
    model = _make_model(settings)
    _log(clock, f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters on {_device()}")
    _compile(model, settings)
    _log(clock, "kernels are ready")
    tokens, weights = _gather(first, made)
    _log(clock, f"{tokens.shape[0]} rows, {tokens.numel() / 1e6:.1f}M tokens")
    clock.begin()
    _run(model, tokens, weights, settings, clock)
    return model


def learning_rate(step: int, progress: float) -> float:
    return min(1.0, (step + 1) / _WARM_UP) * min(1.0, max(0.02, (1 - progress) / _DECAY))


def parameters(model: Model) -> dict[str, Floats]:
    return {name: parameter.detach().float().cpu().numpy() for name, parameter in model.named_parameters()}


def _run(model: Model, tokens: Tensor, weights: Tensor, settings: Settings, clock: Clock) -> None:
    optimiser, scale = Optimiser(model), torch.tensor(_WEIGHTS, device=tokens.device)
    losses: list[Tensor] = []
    for step, index in enumerate(_batches(len(tokens), settings)):
        progress = clock.progress(step)
        if progress >= 1:
            break
        loss = model.loss(tokens[index].long(), scale[weights[index].long()])
        loss.backward()
        optimiser.step(learning_rate(step, progress))
        model.zero_grad()
        losses.append(loss.detach())
        if len(losses) == _REPORT_EVERY:
            seen = (step + 1) * settings.batch * settings.length / 1e6
            _log(clock, f"step {step + 1}  loss {torch.stack(losses).mean().item():.4f}  {seen:.1f}M tokens")
            losses.clear()


def _batches(num_rows: int, settings: Settings) -> Iterator[Tensor]:
    order = torch.Generator().manual_seed(settings.seed)
    while True:
        shuffled = torch.randperm(num_rows, generator=order)
        whole = shuffled[: num_rows // settings.batch * settings.batch].to(_device())
        yield from whole.split(settings.batch)


def _make_model(settings: Settings) -> Model:
    torch.manual_seed(settings.seed)
    torch.set_float32_matmul_precision("high")
    if _device() == "cpu":
        return Model(settings.shape, kernels.plain())
    model = Model(settings.shape, kernels.fast(settings.batch, settings.length), torch.bfloat16)
    model.to("cuda")
    return model


def _compile(model: Model, settings: Settings) -> None:
    """One pass over nothing in particular, so that compiling does not wait for the text."""
    if _device() == "cuda":
        rows = torch.randint(0, 8000, (settings.batch, settings.length + 1), device="cuda")
        for _ in range(2):
            model.loss(rows, torch.ones_like(rows, dtype=torch.float32)).backward()
            model.zero_grad()
        torch.cuda.synchronize()


def _gather(first: Rows, made: Iterator[Rows]) -> tuple[Tensor, Tensor]:
    rows = [first, *made]
    tokens = torch.from_numpy(np.concatenate([part.tokens for part in rows]).astype(np.int16))
    weights = torch.from_numpy(np.concatenate([part.weights for part in rows]))
    return tokens.to(_device()), weights.to(_device())


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _log(clock: Clock, text: str) -> None:
    print(f"[{clock.now:6.1f} s] {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train leftoff-tiny.")
    parser.add_argument("--minutes", type=float, default=9.5, help="for everything, preparation included")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the results")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--documents", type=int, default=350_000, help="how many conversations to make up")
    parser.add_argument("--steps", type=int, help="stop after so many, if the time is not up before")
    parser.add_argument("--micro", action="store_true", help="a model and a batch for a CPU")
    options = parser.parse_args()
    settings = Settings(
        options.minutes, options.out, options.seed, num_generated=options.documents, max_steps=options.steps
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
