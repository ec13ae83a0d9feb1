"""The table of sampling parameters: wire, command line and model files take exactly what it says."""

import argparse
from dataclasses import replace

import msgspec
import pytest

from leftoff.cli.flags import CommandLine
from leftoff.cli.llama_flags import add_sampling, sampling_of
from leftoff.sampling import DEFAULT_SAMPLING, PARAMETERS, Parameter, Sampling, recommended
from leftoff.server.request.sampling import SamplingFields

LIMITED = [parameter for parameter in PARAMETERS if parameter.limits]


def highest(parameter: Parameter) -> float:
    assert parameter.limits is not None
    return parameter.kind(parameter.limits[1])


def beyond(parameter: Parameter) -> float:
    return highest(parameter) + 1


def parse(words: list[str]) -> argparse.Namespace:
    parser = CommandLine(prog="leftoff")
    add_sampling(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("parameter", LIMITED, ids=lambda parameter: parameter.name)
def test_a_number_has_the_same_limits_everywhere(parameter: Parameter, capsys: pytest.CaptureFixture[str]) -> None:
    name, text = parameter.name, str(beyond(parameter))
    assert getattr(Sampling(**{name: highest(parameter)}), name) == highest(parameter)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{name} is"):
        Sampling(**{name: beyond(parameter)})  # type: ignore[arg-type]
    assert getattr(msgspec.convert({name: highest(parameter)}, SamplingFields), name) == highest(parameter)
    with pytest.raises(msgspec.ValidationError, match=name):
        msgspec.convert({name: beyond(parameter)}, SamplingFields)
    if parameter.gguf_key:
        wanted = {name: highest(parameter)}
        assert recommended({parameter.gguf_key: str(highest(parameter))}) == replace(DEFAULT_SAMPLING, **wanted)  # type: ignore[arg-type]
        assert recommended({parameter.gguf_key: text}) == DEFAULT_SAMPLING
    for flag in parameter.flags:
        assert sampling_of(parse([flag, str(highest(parameter))])) == {name: highest(parameter)}
        with pytest.raises(SystemExit):
            parse([flag, text])
        assert f"{name} is" in capsys.readouterr().err


def test_every_number_is_in_the_table() -> None:
    others = {"dry_sequence_breakers", "logit_bias", "samplers"}
    assert {parameter.name for parameter in PARAMETERS} | others == {*Sampling.__dataclass_fields__}
