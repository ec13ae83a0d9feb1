"""What leftoff's engine makes of a model file: logits and tokens."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work


def engine_logits(path: Path, tokens: list[int]) -> npt.NDArray[np.float32]:
    """Of the last position."""
    with LlamaEngine.open(path, ContextSettings(num_cells=512, num_sequences=1, threads=1, kv_type="f32")) as engine:
        (row,) = engine.decode([Work(0, np.array(tokens, np.int32))])
        return engine.logits(row).copy()
