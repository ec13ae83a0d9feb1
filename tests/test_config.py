"""Settings: checked where they are made, whoever makes them."""

import dataclasses

import pytest

from leftoff.config import BILLING_LINE, KV_TYPES, MAX_SEQUENCES, Settings, definitions
from leftoff.setting import SettingError


def test_the_defaults_are_valid() -> None:
    assert Settings().host == "127.0.0.1"
    assert Settings().drop_header == (BILLING_LINE,)


def test_every_field_is_a_setting_with_help() -> None:
    assert [d.name for d in definitions()] == [field.name for field in dataclasses.fields(Settings)]
    assert all(d.help for d in definitions())


def test_no_flag_means_two_things() -> None:
    options = [option for d in definitions() for option in (d.option, *d.aliases)]
    assert len({*options}) == len(options)


@pytest.mark.parametrize("definition", definitions(), ids=lambda d: d.name)
def test_a_default_survives_being_written_and_read(definition: object) -> None:
    d = next(d for d in definitions() if d is definition)
    text = d.separator.join(d.default) if d.is_list else str(d.default)
    if text or d.may_be_empty:
        assert d.value(text) == d.default


def test_the_engine_knows_every_type_that_may_be_asked_for() -> None:
    (kv_type,) = (d for d in definitions() if d.name == "kv_type")
    (slots,) = (d for d in definitions() if d.name == "slots")
    assert {*kv_type.choices} == KV_TYPES.keys()
    assert slots.limits == (1, MAX_SEQUENCES)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"port": 70000}, "--port: 70000 must be between 0 and 65535"),
        ({"slots": 0}, "--slots: 0 must be between 1 and 255"),
        ({"ram": -5}, "--ram: -5 must be between 0 and [0-9]+, or auto, or -1$"),
        ({"cors": ("chat.example",)}, "--cors: 'chat.example' is not an origin: give one such as https://chat.example"),
        ({"cors": ("https://chat.example/page",)}, "--cors: .* is not an origin"),
        ({"overflow": "drop"}, "--overflow: 'drop' is unknown: must be one of error, cut"),
        (
            {"allowed_host": ("http://chat.example",)},
            r"--allowed-host: .http://chat.example. is not a host: give a name",
        ),
        ({"allowed_host": ("*.example",)}, "--allowed-host: .*or \\* for all"),
        ({"fit_target": ","}, "--fit-target: ',' is no list of numbers"),
        ({"tensor_split": "3,-1"}, "--tensor-split: '3,-1' is no list of numbers"),
        ({"pin": ("(",)}, r"--pin: '\(' is not a regular expression"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Settings(**values)  # type: ignore[arg-type]
