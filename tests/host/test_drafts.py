"""What drafts for a model: by the settings, if it fits the model, and within its memory."""

from pathlib import Path

import httpx
import pytest

from leftoff.engine.errors import ModelError
from leftoff.host.build import fitted, open_host
from leftoff.host.drafts import vocabulary_problem
from leftoff.hub.reference import default_model
from leftoff.server.server import serving
from tests.factory import MTP, model_path
from tests.factory.adapters import control_vector_bytes, lora_path
from tests.factory.heads import head_path
from tests.patience import PATIENCE_S
from tests.scheduler.conftest import FreeBatches
from tests.server.fixtures import settings

PROMPT = "The road goes up the hill and down to the harbour, where the boats lie. " * 8


def ask(url: str, prompt: str = PROMPT) -> dict[str, object]:
    body = {"prompt": prompt, "n_predict": 24, "temperature": 0, "ignore_eos": True}
    answer: dict[str, object] = httpx.post(f"{url}/completion", json=body, timeout=PATIENCE_S).json()
    return answer


def test_a_draft_model_drafts_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "leftoff")
    draft = str(model_path("llama"))
    with open_host(settings("llama", draft="off")) as host, serving(host) as url:
        plain = ask(url)["content"]
    with open_host(settings("llama", draft="model", model_draft=draft)) as host, serving(host) as url:
        drafter = host.scheduler.drafter
        assert drafter is not None
        assert drafter.model is not None
        assert not drafter.has_trails
        assert drafter.model.cache.ram.budget.capacity is host.cache.ram.budget.capacity, "they share the bytes of RAM"
        drafter.guesses[0].step_ms = 0.0  # as a smaller one: here a token takes as long as in the model
        drafter.times = FreeBatches({1: 1.0, 64: 1.0})
        drafter.model.cache.costs.prefill_tokens_per_ms = 1e6  # so that it pays to read a prompt for 24 tokens
        replies = [ask(url) for _ in range(2)]
        assert [reply["content"] for reply in replies] == [plain, plain]
        assert replies[0]["timings"]["draft_n_accepted"] > 10  # type: ignore[index]
        assert httpx.delete(f"{url}/cache", timeout=PATIENCE_S).status_code == 200
        assert drafter.model.cache.ram.budget.used_bytes == 0
    assert "guesses a token in" in caplog.text


@pytest.mark.parametrize("architecture", ["llama", "qwen35"])
def test_a_draft_model_drafts_for_adapters_and_has_none_itself(architecture: str, tmp_path: Path) -> None:
    model, vector = model_path("llama"), tmp_path / "vector.gguf"
    vector.write_bytes(control_vector_bytes(model, 1))
    adapted = {"lora": (str(lora_path(model, 1)),), "control_vector": (str(vector),)}
    with open_host(settings("llama", draft="off", **adapted)) as host, serving(host) as url:
        plain = ask(url)["content"]
    asked = settings("llama", fit=True, draft="model", model_draft=str(model_path(architecture)), **adapted)
    with open_host(asked) as host, serving(host) as url:
        assert host.engine.draft is not None
        assert host.engine.draft.settings.control is None
        drafter = host.scheduler.drafter
        assert drafter is not None
        drafter.guesses[0].step_ms, drafter.times = 0.0, FreeBatches({1: 1.0, 64: 1.0})
        reply = ask(url)
        assert reply["content"] == plain
        assert reply["timings"]["draft_n"] > 0  # type: ignore[index]


def test_it_goes_on_after_a_sleep() -> None:
    asked = settings("qwen35", draft="model", model_draft=str(model_path("qwen35")), sleep_idle_seconds=1000)
    with open_host(asked) as host, serving(host) as url:
        before = ask(url)["content"]
        host.call(host.scheduler.waking.sleep).result()
        assert host.engine.draft is not None
        assert host.engine.draft.is_asleep
        assert ask(url)["content"] == before
        assert not host.engine.draft.is_asleep


@pytest.mark.parametrize("kind", ["shared", "own"])
def test_an_eagle_head_drafts_and_changes_nothing(kind: str) -> None:
    head = str(head_path(MTP, kind))
    with open_host(settings(MTP, draft="off")) as host, serving(host) as url:
        plain = ask(url)["content"]
    asked = settings(MTP, draft="model", model_draft=head, fit=True, sleep_idle_seconds=1000)
    with open_host(asked) as host, serving(host) as url:
        drafter = host.scheduler.drafter
        assert drafter is not None
        assert host.engine.draft is None
        (guesses,) = drafter.guesses
        guesses.step_ms, drafter.times = 0.0, FreeBatches({1: 1.0, 64: 1.0})
        reply = ask(url)
        assert reply["content"] == plain
        assert reply["timings"]["draft_n_accepted"] > 5  # type: ignore[index]
        host.call(host.scheduler.waking.sleep).result()
        assert host.engine.head is not None
        assert host.engine.head.handle is None
        assert ask(url, f"{PROMPT} Then")["timings"]["draft_n"] > 0  # type: ignore[index]
        assert ask(url)["content"] == plain


def test_a_head_that_was_replaced_in_a_sleep_drafts_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    head = tmp_path / "head.gguf"
    head.write_bytes(head_path(MTP).read_bytes())
    asked = settings(MTP, draft="model", model_draft=str(head), sleep_idle_seconds=1000)
    with open_host(asked) as host, serving(host) as url:
        before = ask(url)["content"]
        host.call(host.scheduler.waking.sleep).result()
        head.write_bytes(model_path("llama").read_bytes())
        assert ask(url)["content"] == before
        assert host.engine.head is None
    assert "no more drafts of hidden states" in caplog.text


def test_a_head_for_another_model_is_refused() -> None:
    with pytest.raises(ModelError, match=r"--model-draft .*: a head for mamba2 was not tried yet, .*: give the head"):
        open_host(settings("mamba2", draft="model", model_draft=str(head_path("llama"))))


def test_fit_counts_a_head() -> None:
    head = head_path("llama")
    alone, beside = (
        fitted(settings("llama", fit=True, ctx=4096, draft="model" if name else "off", model_draft=name))
        for name in ("", str(head))
    )
    assert head.stat().st_size // 2 + 4096 * 64 * 2 * 2 < beside.needs["RAM"] - alone.needs["RAM"]


@pytest.mark.parametrize("changes", [{"draft": "off"}, {"draft": "tree"}, {"draft": "mtp"}, {"deterministic": True}])
def test_it_is_not_loaded_where_it_is_not_wanted(changes: dict[str, object]) -> None:
    with open_host(settings(MTP, model_draft=str(model_path("qwen35")), **changes)) as host:
        assert host.engine.draft is None


def test_fit_counts_its_weights_and_its_context() -> None:
    draft = model_path("qwen35")
    alone, beside = (
        fitted(settings("llama", fit=True, draft="model" if name else "off", model_draft=name))
        for name in ("", str(draft))
    )
    extra = beside.needs["RAM"] - alone.needs["RAM"]
    assert draft.stat().st_size // 2 < extra


def test_a_draft_model_with_other_tokens_is_refused(tmp_path: Path) -> None:
    main = model_path("llama")
    assert vocabulary_problem(main, model_path("qwen35")) == ""
    assert vocabulary_problem(main, default_model()).startswith("it has ")
    renamed = tmp_path / "renamed.gguf"
    renamed.write_bytes(main.read_bytes().replace(b"ar", b"ra"))
    assert "of its tokens are others: " in vocabulary_problem(main, renamed)
    assert "cannot be read (No such file" in vocabulary_problem(main, tmp_path / "none.gguf")
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(main.read_bytes()[:2000])
    assert "cannot be read" in vocabulary_problem(main, damaged)
    for fit in (True, False):
        asked = settings("llama", fit=fit, draft="model", model_draft=str(default_model()))
        with pytest.raises(ModelError, match=r"--model-draft .*: it has .* tokens, and the model has .*: give"):
            open_host(asked)


def test_a_head_that_reads_hidden_states_is_refused(tmp_path: Path) -> None:
    head = tmp_path / "head.gguf"
    data = model_path("qwen35").read_bytes()
    head.write_bytes(data.replace(b"\x06\0\0\0\0\0\0\0qwen35", b"\x06\0\0\0\0\0\0\0dflash", 1))
    with pytest.raises(ModelError, match=r"it is a dflash head, .* not supported"):
        open_host(settings("llama", draft="model", model_draft=str(head)))


def test_without_one_only_its_drafts_cannot_be_wanted() -> None:
    with pytest.raises(ModelError, match="--model-draft FILE"):
        open_host(settings("llama", draft="model"))
