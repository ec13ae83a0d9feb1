"""What a model and a context will take is known before: compared with what they take when they are made."""

import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from leftoff.config import MIB
from leftoff.engine.binding.library import load_library
from leftoff.engine.context import Context, ContextSettings
from leftoff.engine.errors import EngineError, OutOfMemoryError
from leftoff.engine.gguf import Tensor
from leftoff.engine.model import Model
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.mtp import MtpContext
from leftoff.engine.needs import HOST, Trial, context_needs, weight_needs
from tests.factory import ARCHITECTURES, MTP, model_path

BUFFER = re.compile(r"(?<!model) buffer size = +([\d.]+) MiB")


def taken(path: Path, settings: ContextSettings, *, mtp: bool = False) -> float:
    """Bytes of all buffers of a real context, as llama.cpp tells them when it has allocated them."""
    model = Model(path, ModelSettings(mtp=mtp))
    with load_library().log.collected() as lines:
        context = Context(model, settings)
        if mtp:
            MtpContext(context, set()).close()
        context.close()
    model.close()
    return sum(float(match[1]) * MIB for match in map(BUFFER.search, lines) if match)


@pytest.mark.parametrize(
    "settings",
    [
        ContextSettings(num_cells=4096, num_sequences=4, threads=1),
        ContextSettings(num_cells=65536, num_sequences=16, threads=1, kv_type="f32", micro_batch_tokens=128),
        ContextSettings(num_cells=2048, num_sequences=1, threads=1, flash_attention="off"),
    ],
    ids=["usual", "large", "without flash attention"],
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_context_takes_what_was_foreseen(architecture: str, settings: ContextSettings) -> None:
    path = model_path(architecture)
    with closing(Trial(path, ModelSettings())) as trial:
        needs = trial.needs(settings)
    assert needs is not None
    real = taken(path, settings)
    assert real <= needs.context[HOST] <= 1.03 * real


def test_a_second_context_for_the_next_token_layer_is_foreseen() -> None:
    path, settings = model_path(MTP), ContextSettings(num_cells=65536, num_sequences=4, threads=1)
    with closing(Trial(path, ModelSettings(mtp=True))) as trial, closing(Trial(path, ModelSettings())) as without:
        needs, fewer = trial.needs(settings), without.needs(settings)
        assert needs is not None
        assert fewer is not None
        assert trial.weights[HOST] > without.weights[HOST] + 100_000, "the weights of the layer"
    hidden_bytes = 4 * 64 * settings.batch_tokens
    real = taken(path, settings, mtp=True) + hidden_bytes
    assert real <= needs.context[HOST] <= 1.03 * real
    assert needs.context[HOST] > 1.3 * fewer.context[HOST], "one layer of attention beside two"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_weights_are_those_of_the_model(architecture: str) -> None:
    path = model_path(architecture)
    model = Model(path)
    with closing(Trial(path, ModelSettings())) as trial:
        assert model.size_bytes <= trial.weights[HOST] <= 1.02 * model.size_bytes
        assert trial.trained_context == model.trained_context
        assert trial.num_layers == int(model.metadata[f"{model.architecture}.block_count"]) + 1
    model.close()


@pytest.mark.parametrize(("architecture", "number"), [("gpt-oss", 4), ("llama", 0), ("deepseek2", 4)])
def test_layers_with_experts_are_counted_from_the_first(architecture: str, number: int) -> None:
    with closing(Trial(model_path(architecture), ModelSettings())) as trial:
        assert trial.num_expert_layers == number


# As llama.cpp logs them with two GPUs, four of five layers and the output on them.
LOADED = """\
load_tensors: layer   0 assigned to device CPU, is_swa = 0
load_tensors: layer   1 assigned to device CUDA0, is_swa = 0
load_tensors: layer   2 assigned to device CUDA0, is_swa = 0
load_tensors: layer   3 assigned to device CUDA1, is_swa = 0
load_tensors: layer   4 assigned to device CUDA1, is_swa = 0
load_tensors: layer   5 assigned to device CUDA1, is_swa = 0
tensor blk.1.ffn_up_exps.weight (12 MiB q8_0) buffer type overridden to CPU
tensor blk.4.ffn_up_exps.weight (12 MiB q8_0) buffer type overridden to CUDA0
""".splitlines()
CONTEXT = """\
llama_context:  CUDA_Host  output buffer size =     2.00 MiB
llama_kv_cache: layer   0: dev = CPU
llama_kv_cache: layer   1: dev = CUDA0
llama_kv_cache: layer   3: dev = CUDA1
llama_kv_cache: layer   4: dev = CUDA1
llama_kv_cache:        CPU KV buffer size =     0.00 MiB
llama_kv_cache:      CUDA0 KV buffer size =     0.00 MiB
llama_kv_cache: size =  400.00 MiB ( 65536 cells,   4 layers,  5/1 seqs), K (f16):  200.00 MiB, V (f16):  200.00 MiB
llama_memory_recurrent:      CUDA0 RS buffer size =    30.00 MiB
llama_memory_recurrent: size =   30.00 MiB (     5 cells,   1 layers,  5 seqs  0 rs_seq), R (f32):    6.00 MiB
sched_reserve:      CUDA0 compute buffer size =   128.00 MiB
sched_reserve:      CUDA1 compute buffer size =    64.00 MiB
sched_reserve:  CUDA_Host compute buffer size =    16.00 MiB
""".splitlines()
GPUS = {"CUDA0": "CUDA0", "CUDA1": "CUDA1"}


def mebibytes(sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: size // MIB for name, size in sizes.items()}


def test_a_context_is_divided_among_the_devices() -> None:
    needs = mebibytes(context_needs(CONTEXT, GPUS))
    assert needs == {HOST: 100 + 2 + 16, "CUDA0": 100 + 30 + 128, "CUDA1": 200 + 64}
    assert mebibytes(context_needs(CONTEXT, {})) == {HOST: 640}


def test_a_buffer_may_be_called_differently_than_its_device() -> None:
    lines = [line.replace(" CUDA0 ", " CUDA0_Private ").replace(" CUDA1 ", " remote[1] ") for line in CONTEXT]
    assert context_needs(lines, GPUS | {"remote[1]": "CUDA1"}) == context_needs(CONTEXT, GPUS)


def test_weights_are_divided_among_the_devices() -> None:
    names = [f"blk.{layer}.{name}.weight" for layer in range(5) for name in ("attn_q", "ffn_up_exps")]
    tensors = [Tensor(name, MIB) for name in (*names, "token_embd.weight", "output_norm.weight", "output.weight")]
    expected = {HOST: 2 + 1 + 1, "CUDA0": 3 + 1, "CUDA1": 3 + 2}
    assert mebibytes(weight_needs(tensors, LOADED, GPUS)) == expected
    # without weights of its own the output has a copy of the embeddings
    assert mebibytes(weight_needs(tensors[:-1], LOADED, GPUS)) == expected


def test_a_file_that_is_no_model_cannot_be_examined(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(model_path("llama").read_bytes()[:3000])
    with pytest.raises(EngineError, match=r"cut\.gguf cannot be examined"):
        Trial(path, ModelSettings())


def test_a_context_whose_positions_alone_fill_the_memory_is_not_tried() -> None:
    with (
        closing(Trial(model_path("llama"), ModelSettings())) as trial,
        pytest.raises(OutOfMemoryError, match="holds no context of 2,147,483,647 tokens: give a smaller"),
    ):
        trial.needs(ContextSettings(num_cells=(1 << 31) - 1))
