"""What a client asks about the choice of tokens arrives where tokens are chosen."""

from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest

from leftoff.host.host import ModelHost
from leftoff.sampling import DEFAULT_SAMPLING, SAMPLERS, Sampling, recommended
from leftoff.server.request.sampling import SamplingFields
from tests.server.fixtures import CONTEXT_TOKENS

PROMPT = "the river runs down from the hill to the town"


def read(host: ModelHost, **fields: Any) -> Sampling:  # noqa: ANN401
    body = msgspec.convert(fields, SamplingFields)
    return body.sampling(host.model.vocabulary, host.context_tokens)


def complete(http: httpx.Client, **fields: Any) -> Any:  # noqa: ANN401
    body = {"prompt": PROMPT, "n_predict": 12, "seed": 5, "temperature": 1.5, "top_k": 0} | fields
    reply = http.post("/completion", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_silence_is_the_default(host: ModelHost) -> None:
    names = SamplingFields.__struct_fields__
    assert read(host) == read(host, **dict.fromkeys(names)) == DEFAULT_SAMPLING
    assert {*names} == {*Sampling.__dataclass_fields__}


def test_silence_is_what_the_models_file_says_where_it_says_something(host: ModelHost) -> None:
    metadata = {"general.sampling.temp": "0.300000", "general.sampling.top_k": "20", "general.name": "some"}
    defaults = recommended(metadata)
    assert defaults == replace(DEFAULT_SAMPLING, temperature=0.3, top_k=20)
    body = msgspec.convert({"top_k": 5}, SamplingFields)
    sampling = body.sampling(host.model.vocabulary, host.context_tokens, defaults)
    assert sampling == replace(DEFAULT_SAMPLING, temperature=0.3, top_k=5)


def test_a_recommendation_that_makes_no_sense_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    assert recommended({"general.sampling.temp": "-1", "general.sampling.top_k": "many"}) == DEFAULT_SAMPLING
    assert "general.sampling.temp is left out: temperature is -1.0: must be between" in caplog.text
    assert "general.sampling.top_k is left out" in caplog.text


PLAIN = {
    "temperature": 0.5,
    "dynatemp_range": 0.2,
    "dynatemp_exponent": 2.0,
    "top_k": -1,
    "top_p": 0.5,
    "min_p": 0.2,
    "typical_p": 0.3,
    "top_n_sigma": 1.5,
    "xtc_probability": 0.4,
    "xtc_threshold": 0.2,
    "repeat_penalty": 1.1,
    "repeat_last_n": 10,
    "frequency_penalty": 0.1,
    "presence_penalty": -0.1,
    "dry_multiplier": 0.8,
    "dry_base": 2.0,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": 20,
    "mirostat": 2,
    "mirostat_tau": 4.0,
    "mirostat_eta": 0.3,
    "adaptive_target": 0.4,
    "adaptive_decay": 0.5,
    "min_keep": 3,
    "seed": 7,
}


def test_every_field_arrives(host: ModelHost, http: httpx.Client) -> None:
    sampling = read(host, **PLAIN)
    assert {name: getattr(sampling, name) for name in PLAIN} == PLAIN
    told = complete(http, **PLAIN)["generation_settings"]
    assert {name: told[name] for name in PLAIN} == PLAIN


def test_who_wants_any_seed_does_not_get_the_servers(host: ModelHost) -> None:
    servers = replace(DEFAULT_SAMPLING, seed=9)
    seeds = [
        SamplingFields(seed=seed).sampling(host.model.vocabulary, host.context_tokens, servers).seed
        for seed in (None, 4, -1)
    ]
    assert seeds == [9, 4, None]


def test_fields_that_mean_something_else(host: ModelHost) -> None:
    assert read(host, repeat_last_n=-1).repeat_last_n == CONTEXT_TOKENS
    assert read(host, dry_penalty_last_n=-1).dry_penalty_last_n == CONTEXT_TOKENS
    assert read(host, dry_base=0.0).dry_base == 1.75
    assert read(host, dry_sequence_breakers=[]).dry_sequence_breakers == ()
    assert read(host, dry_sequence_breakers=["\n", "é"]).dry_sequence_breakers == ("\n", "é")
    assert read(host, seed=-1).seed is None
    assert read(host, adaptive_target=-1.0) == DEFAULT_SAMPLING
    assert read(host, logit_bias=[[5, False], ["6", 1.5]]).logit_bias == ((5, float("-inf")), (6, 1.5))


@pytest.mark.parametrize(
    ("samplers", "expected"),
    [
        ([], ()),
        ("", ()),
        ("edskypmxt", SAMPLERS),
        ("tk", ("temperature", "top_k")),
        (["temperature", "top_k"], ("temperature", "top_k")),
        (["top-p", "TOPK", "typ", "temp"], ("top_p", "top_k", "typ_p", "temperature")),
        ([*SAMPLERS, "adaptive_p"], SAMPLERS),
    ],
)
def test_samplers_by_name_and_by_letter(host: ModelHost, samplers: list[str] | str, expected: tuple[str, ...]) -> None:
    assert read(host, samplers=samplers).samplers == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"typical_p": 0.2},
        {"top_n_sigma": 0.5},
        {"xtc_probability": 1.0, "xtc_threshold": 0.001},
        {"dynatemp_range": 1.4, "dynatemp_exponent": 3.0},
        {"mirostat": 1, "mirostat_tau": 1.0},
        {"mirostat": 2, "mirostat_tau": 1.0},
        {"adaptive_target": 0.01},
        {"samplers": ["temperature", "min_p"], "min_p": 0.5},
        {"samplers": []},
    ],
    ids=str,
)
def test_a_sampler_changes_the_reply_and_the_seed_repeats_it(http: httpx.Client, fields: dict[str, Any]) -> None:
    plain, first, again = complete(http), complete(http, **fields), complete(http, **fields)
    assert plain["content"] != first["content"] == again["content"]


def test_a_prompt_that_repeats_itself_is_not_gone_on_with(http: httpx.Client) -> None:
    tokens = [*range(300, 320)] * 3
    fields: dict[str, Any] = {"prompt": tokens[:-10], "temperature": 0, "n_predict": 1, "return_tokens": True}
    fields["logit_bias"] = [[tokens[10], 20]]  # the model would
    assert complete(http, **fields)["tokens"] == [tokens[10]]
    assert complete(http, **fields, dry_multiplier=0.8)["tokens"] != [tokens[10]]
    assert complete(http, **fields, dry_multiplier=0.8, dry_penalty_last_n=15)["tokens"] == [tokens[10]]
