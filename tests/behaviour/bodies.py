"""Request bodies as real clients build them, one or more for each route, with texts of our own. Material for mutations.

Their structure is that of Claude Code, Codex, OpenCode, pi and the SDKs. Replies are short: many fit in a minute.
"""

from typing import Any

Body = dict[str, Any]

_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "command": {"description": "The command to run", "type": "string"},
        "timeout": {"description": "In milliseconds", "type": "number", "minimum": 0},
        "mode": {"type": "string", "enum": ["fast", "slow"]},
        "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 4},
        "inner": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/one"}]},
    },
    "$defs": {"one": {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False}},
    "required": ["command"],
    "additionalProperties": False,
}
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_MARK = {"type": "ephemeral"}


def _text(text: str, **more: object) -> Body:
    return {"type": "text", "text": text, **more}


_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PIXEL}}
_DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a page"}, "title": "t"}
_USE = {"type": "tool_use", "id": "toolu_01", "name": "Bash", "input": {"command": "ls", "lines": [1, 2]}}
_RESULT = {
    "type": "tool_result",
    "tool_use_id": "toolu_01",
    "is_error": False,
    "content": [_text("a.txt\nb.txt"), _IMAGE],
}

CLAUDE_CODE: Body = {
    "model": "local",
    "max_tokens": 3,
    "system": [
        _text("x-anthropic-billing-header: cc_version=2.1; cch=1a2b3;"),
        _text("You help with code.\n\ngitStatus: On branch main\nRecent commits: one", cache_control=_MARK),
    ],
    "messages": [
        {
            "role": "user",
            "content": [_text("<system-reminder>\nToday is 2026-01-02.\n</system-reminder>")],
        },
        {"role": "system", "content": "Agents: one, two."},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s"}, _text("Yes."), _USE]},
        {"role": "user", "content": [_RESULT, _DOCUMENT, _text("go on", cache_control=_MARK)]},
    ],
    "tools": [
        {"name": "Bash", "description": "Runs a command", "input_schema": _SCHEMA, "cache_control": _MARK},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "metadata": {"user_id": "u"},
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
    "stop_sequences": ["\n\nHuman:"],
    "temperature": 1,
    "stream": True,
}

_FUNCTION = {"name": "bash", "description": "Runs a command", "parameters": _SCHEMA, "strict": False}
_CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}

CHAT: Body = {
    "model": "local",
    "messages": [
        {"role": "system", "content": "You are brief. Today is 2026-01-02."},
        {
            "role": "user",
            "content": [_text("hi"), {"type": "image_url", "image_url": {"url": "data:image/png,A"}}],
        },
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "name": "bash", "content": "a.txt"},
        {"role": "user", "content": "go on", "name": "Ann"},
    ],
    "tools": [{"type": "function", "function": _FUNCTION}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "max_completion_tokens": 3,
    "stream": True,
    "stream_options": {"include_usage": True},
    "store": False,
    "reasoning_effort": "low",
}
CHAT_SAMPLED: Body = {
    "messages": [{"role": "user", "content": "Say a number."}],
    "max_tokens": 3,
    "n": 2,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.05,
    "seed": 7,
    "stop": ["\n", "."],
    "logit_bias": {"5": -100, "7": 1.5},
    "logprobs": True,
    "top_logprobs": 2,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "repeat_penalty": 1.1,
    "cache_salt": "salt",
    "user": "u",
    "return_progress": True,
    "timings_per_token": True,
    "chat_template_kwargs": {"enable_thinking": False},
}
CHAT_FORMAT: Body = {
    "messages": [{"role": "developer", "content": "JSON only."}, {"role": "user", "content": "Give one."}],
    "max_tokens": 3,
    "response_format": {"type": "json_schema", "json_schema": {"name": "one", "strict": True, "schema": _SCHEMA}},
}

COMPLETION: Body = {
    "model": "local",
    "prompt": ["The river", "A lamp"],
    "max_tokens": 3,
    "echo": True,
    "logprobs": 2,
    "n": 1,
    "stop": "\n",
    "suffix": None,
    "seed": 1,
    "stream": False,
}
COMPLETION_TOKENS: Body = {"prompt": [[5, 6, 7], [8, 9]], "max_tokens": 2, "stream": True, "return_progress": True}

_SAYS = {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
CODEX: Body = {
    "model": "local",
    "instructions": "You are brief.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>all"}]},
        _SAYS,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None, "content": None},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "exec", "arguments": '{"command": "ls"}'},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a.txt"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A file."}]},
        {"role": "user", "content": "go on"},
    ],
    "tools": [
        {"type": "function", "name": "exec", "description": "Runs", "strict": False, "parameters": _SCHEMA},
        {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "look", "parameters": _SCHEMA}]},
        {"type": "web_search"},
        {
            "type": "custom",
            "name": "patch",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"},
        },
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "low", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "text": {"verbosity": "low", "format": {"type": "text"}},
    "prompt_cache_key": "k",
    "client_metadata": {"turn_id": "t"},
    "max_output_tokens": 3,
    "stream": True,
}
RESPONSE: Body = {
    "input": "hello",
    "max_output_tokens": 2,
    "text": {"format": {"type": "json_schema", "name": "one", "schema": _SCHEMA}},
    "previous_response_id": None,
    "conversation": None,
    "metadata": {"a": "b"},
    "temperature": 0,
    "truncation": "auto",
}

OLLAMA_CHAT: Body = {
    "model": "local",
    "messages": [
        {"role": "user", "content": "hi", "images": [_PIXEL]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "bash", "arguments": {"command": "ls"}}}],
        },
        {"role": "tool", "content": "a.txt", "tool_name": "bash"},
    ],
    "tools": [{"type": "function", "function": _FUNCTION}],
    "format": _SCHEMA,
    "options": {"num_predict": 3, "temperature": 0, "num_ctx": 512, "stop": ["x"], "seed": 1},
    "think": False,
    "keep_alive": "5m",
    "stream": True,
}
OLLAMA_GENERATE: Body = {
    "model": "local",
    "prompt": "The river",
    "suffix": "",
    "system": "Be brief.",
    "options": {"num_predict": 3},
    "raw": False,
    "context": [1, 2],
    "format": "json",
    "stream": False,
}
NATIVE: Body = {
    "prompt": "The river",
    "n_predict": 3,
    "temperature": 0.5,
    "cache_prompt": True,
    "id_slot": 0,
    "n_probs": 2,
    "grammar": 'root ::= "a" | "b"',
    "stop": ["\n"],
    "samplers": ["top_k", "temperature"],
    "dry_sequence_breakers": ["\n"],
    "logit_bias": [[5, False], ["the", 1.0]],
    "ignore_eos": False,
    "return_tokens": True,
    "stream": True,
    "return_progress": True,
}

_ITEMS: Body = {"items": [_SAYS, {"role": "user", "content": "and"}]}

ROUTES: tuple[tuple[str, Body], ...] = (
    *(("/v1/messages", CLAUDE_CODE), ("/v1/messages?beta=true", CLAUDE_CODE | {"stream": False})),
    ("/v1/messages/count_tokens", {key: CLAUDE_CODE[key] for key in ("system", "messages", "tools", "model")}),
    *(("/v1/chat/completions", body) for body in (CHAT, CHAT | {"stream": False}, CHAT_SAMPLED, CHAT_FORMAT)),
    *(("/v1/completions", body) for body in (COMPLETION, COMPLETION_TOKENS)),
    *(("/v1/responses", body) for body in (CODEX, CODEX | {"stream": False}, RESPONSE)),
    *(("/v1/responses/input_tokens", body) for body in (CODEX, RESPONSE)),
    ("/v1/conversations", _ITEMS | {"metadata": {"a": "b"}}),
    ("/v1/conversations/conv_1/items", _ITEMS),
    *(("/api/chat", body) for body in (OLLAMA_CHAT, OLLAMA_CHAT | {"stream": False, "format": None})),
    *(("/api/generate", OLLAMA_GENERATE), ("/api/show", {"model": "local", "verbose": True})),
    *(("/completion", NATIVE), ("/completion", {"prompt": [5, 6, 7], "n_predict": 2})),
    ("/tokenize", {"content": "The river", "add_special": True, "parse_special": True, "with_pieces": True}),
    ("/detokenize", {"tokens": [5, 6, 7]}),
    ("/apply-template", {"messages": CHAT["messages"], "tools": CHAT["tools"], "add_generation_prompt": True}),
)


def picture_routes(file: str) -> tuple[tuple[str, Body], ...]:
    """Bodies with a picture or a document, wherever a dialect has them. `file` is its base64."""
    url, seen = f"data:image/png;base64,{file}", _text("what is this?")
    image, source = {"type": "image_url", "image_url": {"url": url}}, {"type": "base64", "data": file}
    document = {"type": "file", "file": {"filename": "a.pdf", "file_data": url}}
    result = {**_RESULT, "content": [_text("a shot"), {"type": "image", "source": source}]}
    shown = {"type": "input_image", "image_url": url}
    said: Body = {"role": "user", "content": [{"type": "image", "source": source}, seen]}
    paper: Body = {"role": "user", "content": [{"type": "document", "source": source, "title": "t"}, seen]}
    used: Body = {"role": "assistant", "content": [_USE]}
    output = {"type": "function_call_output", "call_id": "c1", "output": [shown]}
    called = {"type": "function_call", "call_id": "c1", "name": "exec", "arguments": "{}"}
    few: Body = {"model": "local", "max_tokens": 2}
    ollama: Body = {"model": "local", "images": [file], "stream": False, "options": {"num_predict": 2}}
    raw = {"prompt_string": "A <__media__> is", "multimodal_data": [file]}
    return (
        ("/v1/chat/completions", few | {"messages": [{"role": "user", "content": [image, seen, image]}]}),
        ("/v1/chat/completions", few | {"messages": [{"role": "user", "content": [document]}], "stream": True}),
        ("/v1/messages", few | {"messages": [said]}),
        ("/v1/messages", few | {"messages": [paper, used, {"role": "user", "content": [result]}], "stream": True}),
        ("/v1/messages/count_tokens", few | {"messages": [said]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [shown]}, called, output], "max_output_tokens": 2}),
        ("/api/chat", ollama | {"messages": [{"role": "user", "content": "hi", "images": [file, file]}]}),
        *(("/api/generate", ollama | {"prompt": "hi", "raw": is_raw}) for is_raw in (False, True)),
        ("/completion", {"prompt": raw, "n_predict": 2}),
        ("/apply-template", {"messages": [{"role": "user", "content": [image, seen]}]}),
    )
