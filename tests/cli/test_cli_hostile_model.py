"""A model file from anybody: what it says of itself is refused with a reason, or left out, and never a traceback."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from leftoff.chat.conversation import Conversation
from leftoff.cli.main import main
from leftoff.config import Settings
from leftoff.host.build import open_host
from tests.factory import small_vocabulary
from tests.factory.architectures import RECIPES
from tests.factory.cache import metadata_of
from tests.factory.gguf import Value, write_model
from tests.factory.parts import Scale
from tests.factory.weights import Weights

Capture = pytest.CaptureFixture[str]
Make = Callable[[Mapping[str, Value]], Path]
FOR_EVER = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A small model that says what it is told to."""

    def made(metadata: Mapping[str, Value]) -> Path:
        recipe, path = RECIPES["llama"], tmp_path / "hostile.gguf"
        weights = Weights(small_vocabulary().words, recipe.embedding)
        write_model(path, {**metadata_of(recipe, Scale()), **metadata}, weights.fill, recipe.omit)
        return path

    return made


def test_odd_values_are_left_out(make: Make) -> None:
    odd: dict[str, Value] = {
        "general.name": "\x1b[2J" + "x" * 1_000_000,
        "general.sampling.temp": "\x1b[2Jhot",
        "general.sampling.top_k": "9" * 5000,
        "general.sampling.top_p": "nan",
    }
    settings = Settings(model=str(make(odd)), ctx=256, threads=1, ram=16, disk=0, slots=1)
    with open_host(settings) as host:
        assert 0 <= host.default_sampling.temperature < 10
        assert host.chats.prompt(Conversation([{"role": "user", "content": "Hello"}])).prompt.length > 0


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (FOR_EVER, "the model's chat template was stopped: it ran for more than"),
        ("{{ 'x' * 10000000000 }}", "the model's chat template was stopped: it made more than"),
        ("{% for %}\x1b[2J", "the chat template cannot be parsed"),
        ("x" * 300_000, "the chat template has 300,000 characters"),
    ],
)
def test_a_hostile_template_is_refused_at_the_start(
    make: Make, capsys: Capture, monkeypatch: pytest.MonkeyPatch, template: str, reason: str
) -> None:
    monkeypatch.setattr("leftoff.chat.template.render.SECONDS", 0.5)
    path = make({"tokenizer.chat_template": template})
    assert main(["serve", str(path), "--port", "0", "--ctx", "256", "--ram", "16", "--disk", "0"]) == 1
    shown = capsys.readouterr().err
    assert reason in shown
    assert "--chat-template-file" in shown
    assert "Traceback" not in shown
    assert "\x1b" not in shown
