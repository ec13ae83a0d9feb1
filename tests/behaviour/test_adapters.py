"""Whatever was read with other adapters, or without any, a reply is that of a server which has only its own."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from leftoff.adapters import AdapterSet
from leftoff.host.build import open_host
from leftoff.types import Tokens
from tests.behaviour.adapters import INVOCATION, Own, adapter_files, ask, expected, of_their_own, play
from tests.factory import model_path
from tests.server.fixtures import settings

ARCHITECTURES = ("qwen35", "gemma3", "llama")  # a recurrent state, a sliding window, attention alone


@pytest.fixture(scope="module")
def own(architecture: str) -> Iterator[Own]:
    with of_their_own(architecture) as own:
        yield own


with_each = pytest.mark.parametrize("architecture", ARCHITECTURES, scope="module")
with_hybrid = pytest.mark.parametrize("architecture", ["qwen35"], scope="module")
with_attention = pytest.mark.parametrize("architecture", ["llama"], scope="module")


@with_each
def test_random_histories_reply_as_servers_of_their_own(architecture: str, own: Own, tmp_path: Path) -> None:
    tally = play(architecture, own, 22, 5, tmp_path)
    assert tally.num_differing == 0, tally
    assert all(tally.reused.values()), f"with each of the adapters some is reused: {tally}"


@with_hybrid
def test_a_namespace_that_is_mixed_is_found(
    architecture: str, own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AdapterSet, "namespace", lambda _, namespace: namespace)
    assert play(architecture, own, 36, 1, tmp_path, is_control=True).num_differing > 0


@with_attention
def test_a_path_without_marks_is_found(
    architecture: str, own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AdapterSet, "marked", lambda _self, tokens, _start, _leaves_at: tokens)
    assert play(architecture, own, 40, 1, tmp_path, is_control=True).num_differing > 0


def new(count: int, seed: int) -> Tokens:
    return np.random.default_rng(seed).integers(5, 300, count).astype(np.int32)


@pytest.mark.parametrize("is_deterministic", [True, False])
@with_each
def test_an_alora_shares_what_comes_before_it_in_both_directions(architecture: str, *, is_deterministic: bool) -> None:
    files = adapter_files(model_path(architecture))
    invoked = np.array(INVOCATION, np.int32)
    one, other = new(320, 1), new(320, 2)
    with open_host(settings(architecture, deterministic=is_deterministic, lora=(files["d"],))) as host:
        ask(host, one, "")
        after_base = ask(host, np.concatenate([one, invoked]), "d")
        ask(host, np.concatenate([other, invoked, new(70, 3)]), "d")
        after_alora = ask(host, np.concatenate([other, new(8, 4)]), "")
        again = ask(host, np.concatenate([other, invoked, new(70, 3), new(3, 5)]), "")
        # the end of a prompt is a resume point; with a grid, the last multiple of 64
        assert after_base.report is not None
        assert after_base.report.reused == 320
        assert after_alora.report is not None
        assert after_alora.report.reused == 320
        assert again.report is not None
        assert again.report.reused in (320, 328)  # none of what the adapter has read


@with_hybrid
def test_what_an_alora_shares_is_exact(architecture: str, own: Own) -> None:
    invoked = np.array(INVOCATION, np.int32)
    files = adapter_files(model_path(architecture))
    steps = [
        (new(300, 1), ""),
        (np.concatenate([new(300, 1), invoked, new(80, 2)]), "d"),
        (np.concatenate([new(300, 1), invoked, new(80, 2), invoked]), "d"),
        (np.concatenate([new(300, 1), invoked, new(80, 2), new(90, 3)]), ""),
        (np.concatenate([new(300, 1), invoked, new(80, 2), new(90, 3)]), "d"),
    ]
    with open_host(settings(architecture, deterministic=True, lora=(files["d"],))) as host:
        for tokens, variant in steps:
            found, measure = ask(host, tokens, variant), expected(own, tokens, variant)
            assert found.tokens == measure.tokens
            assert np.array_equal(found.logits, measure.logits)
