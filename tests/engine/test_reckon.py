"""What is reckoned from a few numbers, beside what llama.cpp says of a file of that size."""

import dataclasses
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import structs

from leftoff.config import KV_TYPES
from leftoff.engine.choice import Room
from leftoff.engine.context import ContextSettings
from leftoff.engine.model_header import model_header
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.needs import HOST, Trial
from leftoff.engine.reckon import _KV_BITS, reckon
from leftoff.hub.catalogue import catalogue

GIB = 1 << 30
F32, Q8_0 = 0, 8
MODELS = catalogue().models


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def entry(key: str, value: int | float | str | list[int]) -> bytes:
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        return text(key) + struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return text(key) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


def write_without_weights(path: Path) -> int:
    """Qwen3.5-0.8B as the hub has it, in Q8_0, but for its vocabulary and its weights, which are a hole in the file."""
    width, inner, rank, conv = 1024, 2048, 16, 6144
    keys: dict[str, int | float | str | list[int]] = {
        "vocab_size": 248_320,
        "context_length": 262_144,
        "embedding_length": width,
        "block_count": 24,
        "feed_forward_length": 3584,
        "full_attention_interval": 4,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "rope.dimension_count": 64,
        "rope.dimension_sections": [11, 11, 10, 0],
        "rope.freq_base": 1e7,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
        "ssm.time_step_rank": rank,
        "ssm.inner_size": inner,
    }
    tensors = {"token_embd.weight": (width, 248_320), "output_norm.weight": (width,)}
    for layer in range(24):
        own = {
            "attn_norm.weight": (width,),
            "post_attention_norm.weight": (width,),
            "ffn_gate.weight": (width, 3584),
            "ffn_up.weight": (width, 3584),
            "ffn_down.weight": (3584, width),
        }
        if layer % 4 == 3:
            own |= {"attn_q.weight": (width, 4096), "attn_k.weight": (width, 512), "attn_v.weight": (width, 512)}
            own |= {"attn_output.weight": (2048, width), "attn_q_norm.weight": (256,), "attn_k_norm.weight": (256,)}
        else:
            own |= {"attn_qkv.weight": (width, conv), "attn_gate.weight": (width, inner), "ssm_norm.weight": (128,)}
            own |= {
                "ssm_beta.weight": (width, rank),
                "ssm_alpha.weight": (width, rank),
                "ssm_out.weight": (inner, width),
            }
            own |= {"ssm_conv1d.weight": (4, conv), "ssm_a": (rank,), "ssm_dt.bias": (rank,)}
        tensors |= {f"blk.{layer}.{name}": shape for name, shape in own.items()}
    parts = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys) + 2)]
    parts += [entry("general.architecture", "qwen35"), entry("tokenizer.ggml.model", "none")]
    parts += [entry(f"qwen35.{key}", value) for key, value in keys.items()]
    end = 0
    for name, shape in tensors.items():
        columns, rows = shape[0], shape[1] if len(shape) > 1 else 0
        kind = Q8_0 if rows and columns % 32 == 0 else F32
        num_values = columns * max(rows, 1)
        parts.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, end))
        end += -(-(num_values // 32 * 34 if kind == Q8_0 else 4 * num_values) // 32) * 32
    header = b"".join(parts)
    header += b"\0" * (-len(header) % 32)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + end)
    return len(header) + end


@pytest.mark.parametrize("num_cells", [8192, 131_072])
def test_it_is_close_to_what_llama_cpp_says(num_cells: int, tmp_path: Path) -> None:
    path, model = tmp_path / "hole.gguf", MODELS["qwen3.5-0.8b"]
    num_bytes = write_without_weights(path)
    assert num_bytes == pytest.approx(model.quants["Q8_0"], rel=0.02), "the hub's file has a vocabulary besides"
    trial = Trial(path, ModelSettings(), dataclasses.replace(model_header(path), num_tokens=248_320))
    told = trial.needs(ContextSettings(num_cells=num_cells, threads=1))
    trial.close()
    assert told is not None
    reckoned = reckon(structs.replace(model, context=num_cells), num_bytes, Room(64 * GIB))
    assert reckoned.choice.num_cells == num_cells
    assert reckoned.needs.weights[HOST] == pytest.approx(sum(told.weights.values()), rel=0.01)
    assert reckoned.needs.context[HOST] == pytest.approx(sum(told.context.values()), rel=0.12)


def test_smaller_keys_and_values_leave_room_for_more_context() -> None:
    model = MODELS["qwen3.6-27b"]
    whole, half = (reckon(model, model.quants["Q4_K_M"], on_card(23), kv) for kv in ("f16", "q8_0"))
    assert whole.choice.num_cells < half.choice.num_cells
    assert _KV_BITS.keys() == KV_TYPES.keys()


def on_card(gib: float, ram: float = 64) -> Room:
    return Room(int(ram * GIB), {"GPU": int(gib * GIB)}, {"GPU": GIB})


def test_a_larger_card_never_has_less_context() -> None:
    model = MODELS["qwen3.6-27b"]
    cells = [reckon(model, model.quants["Q4_K_M"], on_card(gib)).choice for gib in (20, 22, 24, 32)]
    assert all(choice.gpu_layers == model.layers + 1 for choice in cells)
    assert all(less.num_cells < more.num_cells for less, more in pairwise(cells))
    assert cells[-1].num_cells == 131_072


def test_what_does_not_fit_the_card_goes_to_ram_experts_first() -> None:
    model = MODELS["qwen3.6-35b-a3b"]
    reckoned = reckon(model, model.quants["Q8_0"], on_card(24))
    assert reckoned.fits
    assert reckoned.choice.gpu_layers == model.layers + 1
    assert 0 < reckoned.choice.n_cpu_moe < model.layers
    dense = MODELS["qwen3.6-27b"]
    reckoned = reckon(dense, dense.quants["Q8_0"], on_card(24))
    assert reckoned.fits
    assert 0 < reckoned.choice.gpu_layers < dense.layers


def test_what_fits_neither_is_said_not_to_fit() -> None:
    model = MODELS["gpt-oss-120b"]
    assert not reckon(model, model.quants["MXFP4"], on_card(24, ram=16)).fits
    assert reckon(model, model.quants["MXFP4"], on_card(24, ram=64)).fits
    assert not reckon(model, model.quants["MXFP4"], Room(32 * GIB)).fits


def test_several_cards_share_by_what_is_free() -> None:
    model = MODELS["qwen3.6-27b"]
    room = Room(32 * GIB, {"A": 8 * GIB, "B": 16 * GIB}, {"A": 0, "B": 0})
    needs = reckon(model, model.quants["Q4_K_M"], room).needs
    assert needs.total("B") == pytest.approx(2 * needs.total("A"), rel=0.01)


def test_a_projector_takes_room_from_the_first_card() -> None:
    model = MODELS["qwen3.6-27b"]
    blind = structs.replace(model, projector=False)
    num_bytes = model.quants["Q4_K_M"]
    seeing, other = (reckon(one, num_bytes, on_card(22)).choice.num_cells for one in (model, blind))
    assert seeing < other
