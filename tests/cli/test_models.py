"""`leftoff models`: what it lists for a machine, in words and for programs."""

import json
import socket

import pytest

from leftoff.cli.main import main
from leftoff.hub.catalogue import catalogue

Capture = pytest.CaptureFixture[str]


def test_every_model_is_listed_with_what_fits_the_machine_that_is_asked_for(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["models", "--vram", "24", "--ram", "32"]) == 0
    shown = capsys.readouterr().out
    rows = {line.split()[0]: line for line in shown.splitlines() if line}
    for name, model in catalogue().models.items():
        assert name in rows
        assert model.kind in rows[name]
    assert "on the GPU" in rows["qwen3.6-27b"]
    assert "partly" in rows["qwen3.6-35b-a3b:Q8_0"]
    assert "slowly" in rows["qwen3.6-27b:Q8_0"]
    assert "no: 59.9 GiB" in rows["gpt-oss-120b"]
    assert "24 GiB on GPU, 32 GiB RAM" in shown
    assert catalogue().as_of in shown


@pytest.mark.parametrize("gpu", [(), ("--vram", "24")])
def test_a_model_takes_one_line_of_a_narrow_terminal(
    gpu: tuple[str, ...], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["models", "--ram", "32", *gpu]) == 0
    rows = capsys.readouterr().out.split("\n\n")[1].splitlines()
    assert len(rows) == 1 + sum(len(model.quants) for model in catalogue().models.values())


def test_programs_get_the_same_as_json(capsys: Capture) -> None:
    assert main(["models", "--ram", "32", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    small = next(model for model in told["models"] if model["name"] == "qwen3.5-4b")
    assert (small["fits"], small["repo"], small["context"]) == (True, "unsloth/Qwen3.5-4B-GGUF", 131_072)
    assert small["needs"]["RAM"] > small["bytes"]
    assert {model["fits"] for model in told["models"]} == {True, False}


def test_this_machine_is_asked_and_no_network(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("free: ")
    assert "qwen3.5-0.8b" in shown


@pytest.mark.parametrize("amount", ["0", "-1", "much"])
def test_an_amount_that_is_none_is_refused(amount: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["models", "--vram", amount])
    assert "not a positive whole number" in capsys.readouterr().err
