"""Random weights under which the logits depend on what was read long before.

Plain noise of small deviation makes a model that is nearly blind to its state, and a recurrent one that forgets at
once or overflows: a test on it would pass with any state. Here signals keep about unit size from layer to layer,
attention is sharp enough for single tokens to matter, and recurrent states fade over some tens of tokens.
"""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .gguf import Floats, Tensor

Filler = Callable[[np.random.Generator, Tensor], Floats]


@dataclass(frozen=True)
class Weights:
    """Values for the tensors of one model, the same at every call.

    Only `words` get logits other than 0. So greedy replies are readable, tokenize back into the same tokens and never
    end by themselves; the special tokens are there for tests that force them.
    """

    words: tuple[int, ...]
    embedding: float

    def fill(self, tensor: Tensor) -> Floats:
        generator = np.random.default_rng(zlib.crc32(tensor.name.encode()))
        match tensor.name:
            case "token_embd.weight":
                return _noise(self.embedding)(generator, tensor)
            case "output.weight":
                return self._speak(_noise(1.0)(generator, tensor))
            case name:
                return _filler(name)(generator, tensor)

    def _speak(self, noise: Floats) -> Floats:
        """Logits of deviation 3, lower for the last word: without that, some replies end in one word for ever."""
        rows, columns = noise.shape
        embeddings = self.fill(Tensor("token_embd.weight", rows, columns)) / np.float32(self.embedding)
        output = np.zeros_like(noise)
        words = list(self.words)
        output[words] = (noise - embeddings)[words] * np.float32(3.0 / (2 * columns) ** 0.5)
        return output


def _filler(name: str) -> Filler:
    return next((filler for pattern, filler in _FILLERS if re.search(pattern, name)), _projection(1.0))


def _projection(gain: float) -> Filler:
    """Noise that turns inputs of unit deviation into outputs of deviation `gain`."""
    return lambda generator, tensor: _noise(gain / tensor.columns**0.5)(generator, tensor)


def _noise(deviation: float) -> Filler:
    return lambda generator, tensor: (
        generator.standard_normal((tensor.rows, tensor.columns), np.float32) * np.float32(deviation)
    )


def _uniform(low: float, high: float) -> Filler:
    return lambda generator, tensor: generator.uniform(low, high, (tensor.rows, tensor.columns)).astype(np.float32)


def _first_inputs(gain: float) -> Filler:
    """Passes as many of the first inputs on as there are outputs."""
    return lambda _, tensor: np.eye(tensor.rows, tensor.columns, dtype=np.float32) * np.float32(gain)


def _constant(value: float) -> Filler:
    return lambda _, tensor: np.full((tensor.rows, tensor.columns), value, np.float32)


# The first pattern found in the tensor's name decides.
_FILLERS = (
    # Attention scores of deviation 3 to 4: with 1, attention would average over everything.
    (r"attn_[qk]_norm\.weight$", _constant(1.75)),
    (r"attn_(q|k|q_b)\.weight$", _projection(2.0)),
    # A next-token layer sees the embedding of the last token: where that counts most, as here, it is often right.
    (r"nextn\.eh_proj\.weight$", _first_inputs(4.0)),
    (r"attn_sinks", _constant(0.0)),
    # What comes from far must count as much as what comes from the last tokens.
    (r"attn_output\.weight$", _projection(2.0)),
    (r"shortconv\.out_proj", _projection(0.5)),
    (r"ssm_d$", _uniform(0.0, 0.2)),
    # State-space and DeltaNet layers keep exp(a * softplus(dt)) of the state per token: about 0.97.
    (r"ssm_a$", _uniform(-0.2, -0.02)),
    (r"ssm_dt\.bias$", _uniform(-2.5, -0.5)),
    (r"ssm_dt\.weight$", _projection(0.5)),
    # RWKV keeps exp(-exp(decay)) in version 6 and exp(-0.6 * sigmoid(w0)) in version 7: about 0.97 too.
    (r"time_mix_(decay|w0)\.weight$", _uniform(-5.0, -2.0)),
    (r"time_mix_(decay_w2|w2)\.weight$", _projection(0.5)),
    # Version 7 also overwrites what the key finds, by the share sigmoid(a0): a little, or it forgets by that.
    (r"time_mix_a0\.weight$", _constant(-2.0)),
    (r"time_mix_v0\.weight$", _constant(0.0)),
    (r"time_mix_k_[ka]\.weight$", _constant(1.0)),
    (r"_lerp_", _uniform(0.0, 1.0)),
    (r"\.bias$", _projection(0.5)),
    (r"norm|time_mix_ln|hc_\w+_scale|rope_freqs", _constant(1.0)),
)
