"""A resume cannot be seen: a short version of the proof in `python -m tests.behaviour.histories`."""

from pathlib import Path

import pytest

from leftoff.hub.reference import default_model
from tests.behaviour.histories.byte_vocabulary import with_byte_vocabulary
from tests.behaviour.histories.play import play
from tests.behaviour.histories.together import play_together
from tests.chat.shared import SHARED, needs
from tests.factory import MTP, model_path
from tests.factory.projectors import projector_path

RWKV = SHARED / "models" / "rwkv7-tiny.gguf"
# Pieces so small that the CPU adds them up cell by cell: where they end makes no difference.
SMALL_PIECES = ("--batch", "32", "--ubatch", "32")


# Short prompts, grown in all six ways; those of the first seed are long, and nearly fill the smallest context.
SHORT = 1


def assert_nothing_is_seen(
    model: Path,
    folder: Path,
    num_steps: int,
    *flags: str,
    seed: int = 0,
    drafts: bool = False,
    steps_per_life: int = 25,
) -> None:
    tally = play(
        model,
        folder,
        num_steps,
        seed,
        flags,
        is_slow=model == default_model(),
        measures_noise="--deterministic" not in flags,
        drafts=drafts,
        steps_per_life=steps_per_life,
    )
    assert tally.is_within_noise, tally
    assert tally.num_cached > 0.2 * tally.num_prompt, f"hardly anything was resumed: {tally}"
    assert (tally.num_lives > 1) == (num_steps >= steps_per_life)


def test_deterministic_answers_are_those_of_a_server_that_never_left(tmp_path: Path) -> None:
    assert_nothing_is_seen(default_model(), tmp_path, 7, "--deterministic")


def test_by_default_small_pieces_are_added_up_the_same_way_wherever_they_end(tmp_path: Path) -> None:
    assert_nothing_is_seen(default_model(), tmp_path, 5, *SMALL_PIECES)


@pytest.mark.parametrize("architecture", [MTP, "gemma3"])
def test_drafts_are_not_seen(architecture: str, tmp_path: Path) -> None:
    assert_nothing_is_seen(model_path(architecture), tmp_path, 10, *SMALL_PIECES, seed=SHORT, drafts=True)


def test_deterministic_answers_with_a_small_kv_type(tmp_path: Path) -> None:
    assert_nothing_is_seen(default_model(), tmp_path, 6, "--deterministic", "--kv-type", "q8_0")


def test_deterministic_answers_with_keys_and_values_of_different_types(tmp_path: Path) -> None:
    flags = ("--deterministic", "-ctk", "f32", "-ctv", "f16")
    assert_nothing_is_seen(model_path("qwen35"), tmp_path, 10, *flags, seed=SHORT)


@pytest.mark.parametrize("architecture", ["llama", "qwen35"])
def test_deterministic_answers_without_flash_attention(architecture: str, tmp_path: Path) -> None:
    flags = ("--deterministic", "--flash-attn", "off")
    assert_nothing_is_seen(model_path(architecture), tmp_path, 10, *flags, seed=SHORT)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba2"])
def test_deterministic_answers_of_other_memories(architecture: str, tmp_path: Path) -> None:
    assert_nothing_is_seen(model_path(architecture), tmp_path, 10, "--deterministic", "--threads", "2")


@needs(RWKV)
def test_a_recurrent_model(tmp_path: Path) -> None:
    model = with_byte_vocabulary(RWKV, tmp_path / "rwkv7.gguf")
    assert_nothing_is_seen(model, tmp_path, 10, *SMALL_PIECES, seed=SHORT)


@needs(RWKV)
def test_a_recurrent_model_through_the_end_of_a_process(tmp_path: Path) -> None:
    model = with_byte_vocabulary(RWKV, tmp_path / "rwkv7.gguf")
    assert_nothing_is_seen(model, tmp_path, 12, "--deterministic", steps_per_life=8)


def test_in_company_the_cache_makes_no_more_noise_than_the_batches(tmp_path: Path) -> None:  # noqa: ARG001
    crowd = play_together(model_path("qwen35"), 6, 1, ())
    assert crowd.num_cached > 0
    assert crowd.largest <= max(0.02, 2 * crowd.noise), crowd


def test_in_company_deterministic_answers_are_those_of_a_client_alone(tmp_path: Path) -> None:  # noqa: ARG001
    crowd = play_together(model_path("qwen35"), 6, 1, ("--deterministic",))
    assert crowd.num_cached > 0
    assert crowd.largest == crowd.noise == 0, crowd


def test_pictures_are_reused_and_nothing_is_seen(tmp_path: Path) -> None:
    flags = ("--deterministic", "--mmproj", str(projector_path("qwen3vl_merger", 64)))
    tally = play(model_path("qwen35"), tmp_path, 12, 7, flags, pictures=True)
    assert tally.num_pictures_reused > 0, tally
    assert tally.is_within_noise, tally
