"""llama-server's own endpoints, by its field names."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.server.fixtures import settings

PROMPT = "the river runs down from the hill to the town"


def complete(http: httpx.Client, **fields: Any) -> Any:  # noqa: ANN401
    reply = http.post("/completion", json={"prompt": PROMPT, "temperature": 0, "n_predict": 6} | fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


def stream(http: httpx.Client, **fields: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    body = {"prompt": PROMPT, "temperature": 0, "n_predict": 6, "stream": True} | fields
    with http.stream("POST", "/completion", json=body) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        return [json.loads(line.removeprefix("data: ")) for line in reply.iter_lines() if line]


def tokenize(http: httpx.Client, **fields: Any) -> Any:  # noqa: ANN401
    return http.post("/tokenize", json=fields).json()["tokens"]


def test_a_text_goes_on(http: httpx.Client) -> None:
    reply = complete(http, id_slot=2, cache_prompt=True)
    num_prompt = len(tokenize(http, content=PROMPT))
    assert len(reply["content"].split()) == 6
    assert (reply["stop"], reply["stop_type"], reply["stopping_word"]) == (True, "limit", "")
    assert (reply["tokens_predicted"], reply["tokens_evaluated"], reply["tokens_cached"]) == (6, num_prompt, 0)
    assert (reply["model"], reply["prompt"], reply["truncated"], reply["tokens"]) == ("tiny", PROMPT, False, [])
    assert reply["generation_settings"]["n_predict"] == 6
    assert reply["timings"]["prompt_n"] == num_prompt
    assert complete(http)["tokens_cached"] == num_prompt


def test_the_path_in_the_plural(http: httpx.Client) -> None:
    reply = http.post("/completions", json={"prompt": PROMPT, "temperature": 0, "n_predict": 6})
    assert reply.json()["content"] == complete(http)["content"]


def test_a_stream_says_the_same(http: httpx.Client) -> None:
    chunks, reply = stream(http), complete(http, return_tokens=True)
    assert "".join(chunk["content"] for chunk in chunks) == reply["content"]
    assert [token for chunk in chunks for token in chunk["tokens"]] == reply["tokens"]
    assert [chunk["stop"] for chunk in chunks] == [False] * 6 + [True]
    assert chunks[-1]["timings"]["predicted_n"] == 6
    assert [chunk["tokens_predicted"] for chunk in chunks] == [1, 2, 3, 4, 5, 6, 6]
    assert "timings" not in chunks[0]
    assert stream(http, timings_per_token=True)[0]["timings"]["predicted_n"] >= 1


def test_progress(http: httpx.Client) -> None:
    chunks = stream(http, return_progress=True)
    seen = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert (seen[0]["processed"], seen[-1]["processed"]) == (0, seen[0]["total"])
    assert {chunk["tokens_predicted"] for chunk in chunks if "prompt_progress" in chunk} == {0}


def test_why_it_stopped(http: httpx.Client) -> None:
    text = complete(http)["content"]
    stop = text[8:12]
    reply = complete(http, stop=[stop])
    assert (reply["stop_type"], reply["stopping_word"]) == ("word", stop)
    assert reply["content"] == text[: text.index(stop)]
    (end,) = tokenize(http, content="<|im_end|>")
    assert complete(http, logit_bias=[[end, 100]])["stop_type"] == "eos"
    full = complete(http, n_predict=-1, prompt=tokenize(http, content=" the" * 4090))
    assert (full["stop_type"], full["truncated"]) == ("limit", True)


def test_probabilities(http: httpx.Client) -> None:
    reply = complete(http, n_probs=2, return_tokens=True)
    chances = reply["completion_probabilities"]
    assert [chance["id"] for chance in chances] == reply["tokens"]
    assert all(len(chance["top_logprobs"]) == 2 for chance in chances)
    assert all(chance["top_logprobs"][0]["logprob"] == chance["logprob"] for chance in chances)
    streamed = [chunk for chunk in stream(http, n_probs=2) if not chunk["stop"]]
    assert [chunk["completion_probabilities"][0]["id"] for chunk in streamed] == reply["tokens"]


@pytest.mark.parametrize("split", [2, 4])
def test_a_prompt_of_text_and_ids(http: httpx.Client, split: int) -> None:
    tokens = tokenize(http, content=PROMPT)
    rest = http.post("/detokenize", json={"tokens": tokens[split:]}).json()["content"]
    expected = complete(http)["content"]
    assert complete(http, prompt=tokens)["content"] == expected
    assert complete(http, prompt=[*tokens[:split], rest])["content"] == expected
    assert complete(http, prompt={"prompt_string": PROMPT})["content"] == expected
    assert [reply["content"] for reply in complete(http, prompt=[PROMPT, tokens])] == [expected, expected]


def test_only_the_prompt_is_read(http: httpx.Client) -> None:
    reply = complete(http, n_predict=0)
    assert (reply["content"], reply["tokens_predicted"]) == ("", 0)
    assert complete(http)["tokens_cached"] == reply["tokens_evaluated"]
    assert reply["timings"]["prompt_per_second"] > 0, "its time is told too"


def test_tokens_and_back(http: httpx.Client) -> None:
    text = "ships find their way — naïvely 🚢"
    tokens = tokenize(http, content=text)
    assert http.post("/detokenize", json={"tokens": tokens}).json() == {"content": text, "prompt": text}
    pieces = tokenize(http, content=text, with_pieces=True)
    assert [piece["id"] for piece in pieces] == tokens
    assert [195] in [piece["piece"] for piece in pieces], "half a letter is a list of bytes"
    assert len(tokenize(http, content="<|im_end|>")) == 1
    assert len(tokenize(http, content="<|im_end|>", parse_special=False)) > 1


def test_a_chat_as_the_model_reads_it(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}]}
    prompt = http.post("/apply-template", json=body).json()["prompt"]
    assert prompt == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    bare = http.post("/apply-template", json=body | {"add_generation_prompt": False}).json()["prompt"]
    assert prompt.startswith(bare)
    assert not bare.endswith("assistant\n")


def test_variables_of_the_template_are_those_of_the_server_where_a_request_sets_none(tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{{ enable_thinking }} {{ tone }} {{ messages[0].content }}")
    kwargs = ('{"enable_thinking": false, "tone": "dry"}',)
    with (
        open_host(settings(chat_template_file=str(template), chat_template_kwargs=kwargs)) as host,
        serving(host) as url,
        httpx.Client(base_url=url) as http,
    ):
        asked: list[dict[str, Any]] = [
            {},
            {"chat_template_kwargs": {"enable_thinking": True}},
            {"reasoning_effort": "low"},
        ]
        bodies = [{"messages": [{"role": "user", "content": "hello"}]} | more for more in asked]
        prompts = [http.post("/apply-template", json=body).json()["prompt"] for body in bodies]
    assert prompts == ["False dry hello", "True dry hello", "True dry hello"]


def test_props(http: httpx.Client, host: ModelHost) -> None:
    props = http.get("/props").json()
    assert props["total_slots"] == 4
    assert props["model_path"] == str(host.model.path)
    assert "<|im_start|>" in props["chat_template"]
    assert props["default_generation_settings"]["n_ctx"] == host.context_tokens
    params = props["default_generation_settings"]["params"]
    assert (params["temperature"], params["top_k"], params["top_p"], params["min_p"]) == (0.8, 40, 0.95, 0.05)
    assert props["eos_token"] == "<|im_end|>"


def test_slots_at_rest_and_at_work(http: httpx.Client) -> None:
    slots = http.get("/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    assert not any(slot["is_processing"] for slot in slots)
    body = {"prompt": PROMPT, "stream": True, "n_predict": 60_000, "temperature": 0}
    with (
        open_host(settings(ctx=1 << 16)) as roomy,
        serving(roomy) as url,
        httpx.Client(base_url=url) as other,
        other.stream("POST", "/completion", json=body) as reply,
    ):
        lines = reply.iter_lines()  # kept: a stream whose iterator goes is closed
        next(lines)
        (busy,) = [slot for slot in other.get("/slots").json() if slot["is_processing"]]
    assert busy["n_prompt_tokens"] == len(tokenize(http, content=PROMPT))
    assert busy["next_token"][0]["n_decoded"] > 0
    assert busy["params"]["n_predict"] == 60_000


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
def test_health(http: httpx.Client, path: str) -> None:
    assert http.get(path).json()["status"] == "ok"


def test_vllms_clients_find_the_tokenizer(http: httpx.Client) -> None:
    """As lm_eval asks for it."""
    info = http.get("/tokenizer_info").json()
    assert info["chat_template"] == http.get("/props").json()["chat_template"]
    text = f"the river{info['eos_token']}"
    made = http.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()
    assert made["tokens"] == http.post("/tokenize", json={"content": text}).json()["tokens"]
    assert (made["count"], made["max_model_len"]) == (len(made["tokens"]), info["model_max_length"])
    assert http.post("/detokenize", json={"tokens": made["tokens"]}).json()["prompt"] == text
    assert http.post("/tokenize", json={"text": text}).json()["error"]["param"] == "content"


def test_a_text_full_of_control_tokens_is_tokenised_in_segments(http: httpx.Client, host: ModelHost) -> None:
    """Whole, a hundred thousand of them would take llama.cpp ten minutes, in which no long prompt is made."""
    text, tokenizer, vocabulary = "<|im_end|>river", host.prompts.tokenizer, host.model.vocabulary
    before = tokenizer.num_calls
    made = http.post("/tokenize", json={"content": text * 1000, "add_special": True}).json()["tokens"]
    assert 1 <= tokenizer.num_calls - before <= 2, "of each segment once"
    assert made == vocabulary.tokenize(text * 1000, add_special=True).tolist()
