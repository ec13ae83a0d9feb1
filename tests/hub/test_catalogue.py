"""The catalogue: its facts agree with each other, and its names stand for repositories."""

import re
from datetime import date
from pathlib import Path

import pytest

from leftoff.chat.formats.detect import find_format
from leftoff.chat.template.render import ChatTemplate
from leftoff.hub.catalogue import CatalogueModel, catalogue, reference_of
from leftoff.hub.files import HubError
from leftoff.hub.reference import find_model, parse_reference, shown_name
from tests.chat.shared import SHARED, needs

MODELS = catalogue().models
TEMPLATE_OF = {
    "qwen3.5-4b": "Qwen3.5-4B.jinja",
    "gemma-4-31b": "google-gemma-4-31B-it.jinja",
    "gpt-oss-120b": "openai-gpt-oss-120b.jinja",
    "nemotron-3-nano-30b-a3b": "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja",
    "qwen3-coder-30b-a3b": "Qwen3-Coder.jinja",
}


@pytest.mark.parametrize(("name", "model"), MODELS.items(), ids=lambda value: value if isinstance(value, str) else "")
def test_the_facts_of_a_model_agree(name: str, model: CatalogueModel) -> None:
    assert re.fullmatch(r"[a-z0-9.-]+", name), "as it is typed"
    assert parse_reference(model.repo) is not None
    assert model.kind in ("hybrid", "window", "recurrent", "attention")
    assert (model.kind == "window") == bool(model.window[0])
    assert (model.kind in ("hybrid", "recurrent")) == bool(model.state)
    assert model.attention[0] + model.window[0] <= model.layers
    embeddings = model.vocabulary * model.embedding * (1 if model.tied else 2) / 1e9
    assert model.experts + embeddings < model.parameters
    for quant, num_bytes in model.quants.items():
        bits = 8 * num_bytes / (model.parameters * 1e9)
        assert (8.3 < bits < 8.7) if quant == "Q8_0" else (4.2 < bits < 6.3), f"{quant} of {bits:.1f} bits"


def test_the_day_of_the_facts_is_named() -> None:
    assert date.fromisoformat(catalogue().as_of).year >= 2026


@needs(SHARED / "templates")
@pytest.mark.parametrize(("name", "file"), TEMPLATE_OF.items())
def test_tools_are_called_as_the_makers_template_says(name: str, file: str) -> None:
    template = ChatTemplate((SHARED / "templates" / file).read_text())
    assert find_format(template).name == MODELS[name].tools


def test_a_name_stands_for_the_first_quantisation_or_for_the_one_that_is_given() -> None:
    assert reference_of("qwen3.5-9b") == reference_of("Qwen3.5-9B") == "unsloth/Qwen3.5-9B-GGUF:Q4_K_M"
    assert reference_of("qwen3.5-9b:Q6_K") == "unsloth/Qwen3.5-9B-GGUF:Q6_K"
    assert reference_of("qwen3.5-9b.gguf") is reference_of("org/repo") is reference_of("") is None
    assert str(parse_reference("qwen3.5-9b")) == "unsloth/Qwen3.5-9B-GGUF:Q4_K_M"
    assert shown_name([], "qwen3.5-9b") == "qwen3.5-9b"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("qwen3.5-9", ": did you mean qwen3.5-9b?"),
        ("gemma4-31b", ": did you mean gemma-4-31b?"),
        ("x", "leftoff models"),
    ],
)
def test_a_name_that_is_none_is_told_the_one_that_was_meant(text: str, hint: str) -> None:
    with pytest.raises(HubError, match=re.escape(f"{text} is neither a file here nor the name of a model")) as raised:
        find_model(text)
    assert hint in str(raised.value)


def test_a_file_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3.5-9b").touch()
    assert find_model("qwen3.5-9b") == Path("qwen3.5-9b")
