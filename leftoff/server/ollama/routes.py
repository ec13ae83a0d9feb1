"""The routes of Ollama that chat clients use: chat, generate, and the description of the loaded model."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response

from leftoff.chat.formats.parser import Output
from leftoff.host.host import ModelHost
from leftoff.server.dialect import Dialect
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ApiError, ErrorShape
from leftoff.server.ollama import types as wire
from leftoff.server.ollama.convert import messages_as_chat, prompt_as_chat
from leftoff.server.ollama.writer import OllamaWriter, error_body
from leftoff.server.reply.response import answer, json_response
from leftoff.server.request.build import chat_jobs, raw_jobs
from leftoff.server.request.fields import ChatRequest
from leftoff.server.request.job import ReplyJob

_OLLAMA_VERSION = "0.12.6"  # clients refuse servers that are older than the features they use
_NEVER = datetime(2318, 1, 1, tzinfo=UTC)


class Ollama(Dialect):
    """Chat, generate, and the model list."""

    error_shapes: ClassVar[Mapping[str, ErrorShape]] = {"/api/": error_body}

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("POST", "/api/chat", "Chat completion", self.chat, wire.OllamaChatRequest),
            Endpoint("POST", "/api/generate", "Completion of a prompt", self.generate, wire.OllamaGenerateRequest),
            Endpoint("POST", "/api/show", "Description of the model", self.show, wire.ShowRequest),
            Endpoint("GET", "/api/tags", "The model that is loaded", self.tags),
            Endpoint("GET", "/api/ps", "The model that runs", self.ps),
            Endpoint("GET", "/api/version", "The version of Ollama that is emulated", self.version),
        ]

    async def chat(self, request: Request, body: wire.OllamaChatRequest) -> Response:
        host = self._hosts.of(body.model)
        if not body.messages:
            return _loaded(host, is_chat=True, unloads=body.unloads)
        jobs = await chat_jobs(host, request, messages_as_chat(body))
        return await _answer(request, host, jobs, is_chat=True, stream=body.stream is not False)

    async def generate(self, request: Request, body: wire.OllamaGenerateRequest) -> Response:
        host = self._hosts.of(body.model)
        if not body.prompt:
            return _loaded(host, is_chat=False, unloads=body.unloads)
        chat = prompt_as_chat(body)
        jobs = await (_raw_jobs if body.raw else chat_jobs)(host, request, chat)
        return await _answer(request, host, jobs, is_chat=False, stream=body.stream is not False)

    async def show(self, _: Request, body: wire.ShowRequest) -> Response:
        wanted = body.model or body.name
        host = self._hosts.of(wanted)
        if full_name(wanted) != full_name(host.name):
            raise ApiError(404, f"there is no model {wanted!r} here: this server runs {host.name!r}")
        return json_response(_described(host))

    async def tags(self, _: Request) -> Response:
        return json_response({"models": [*map(_listed, self._hosts)]})

    async def ps(self, _: Request) -> Response:
        return json_response({"models": [*map(_running, self._hosts)]})

    async def version(self, _: Request) -> Response:
        return json_response({"version": _OLLAMA_VERSION})


async def _raw_jobs(host: ModelHost, request: Request, chat: ChatRequest) -> list[ReplyJob]:
    """The prompt without the model's template."""
    return await raw_jobs(
        host,
        request,
        chat,
        lambda: [host.prompts.from_text(str(chat.messages[-1].content))],
        output=Output(host.prompts.format, splits_reasoning=False),
    )


async def _answer(request: Request, host: ModelHost, jobs: list[ReplyJob], *, is_chat: bool, stream: bool) -> Response:
    return await answer(request, host, jobs, uuid.uuid4().hex, _writer(host, is_chat=is_chat), stream=stream)


def _loaded(host: ModelHost, *, is_chat: bool, unloads: bool) -> Response:
    """Answer an empty request: clients send one to load or unload the model, which here is always loaded."""
    return json_response(_writer(host, is_chat=is_chat).chunk(end={"done_reason": "unload" if unloads else "load"}))


def _writer(host: ModelHost, *, is_chat: bool) -> OllamaWriter:
    return OllamaWriter(full_name(host.name), is_chat)


def full_name(name: str) -> str:
    """Ollama's names always have a tag."""
    return name if ":" in name else f"{name}:latest"


def _listed(host: ModelHost) -> dict[str, Any]:
    """The model in a list."""
    name = full_name(host.name)
    return {
        "name": name,
        "model": name,
        "modified_at": _modified_at(host),
        "size": host.model.size_bytes,
        "digest": host.engine.memory.fingerprint,
        "details": _details(host),
    }


def _running(host: ModelHost) -> dict[str, Any]:
    return _listed(host) | {"expires_at": _NEVER, "size_vram": 0, "context_length": host.context_tokens}


def _described(host: ModelHost) -> dict[str, Any]:
    """The model in full."""
    model, prompts = host.model, host.prompts
    capabilities = {
        "completion": True,
        "tools": prompts.quirks.shows_tools,
        "thinking": prompts.format.reasoning is not None,
    }
    return {
        "template": prompts.template.source,
        "details": _details(host),
        "model_info": {
            "general.architecture": model.architecture,
            "general.basename": model.name,
            "general.parameter_count": model.num_parameters,
            f"{model.architecture}.context_length": host.context_tokens,
        },
        "capabilities": [name for name, is_there in capabilities.items() if is_there],
        "modified_at": _modified_at(host),
        "modelfile": "",
        "parameters": "",
        "license": "",
    }


def _details(host: ModelHost) -> dict[str, Any]:
    model = host.model
    return {
        "family": model.architecture,
        "families": [model.architecture],
        "parameter_size": _size(model.num_parameters),
        # llama.cpp describes a model by family, size and quantization
        "quantization_level": model.description.split(maxsplit=2)[-1],
        "format": "gguf",
        "parent_model": "",
    }


def _size(num_parameters: int) -> str:
    return f"{num_parameters / 1e9:.1f}B" if num_parameters >= 1e9 else f"{num_parameters / 1e6:.2f}M"


def _modified_at(host: ModelHost) -> datetime:
    return datetime.fromtimestamp(host.model.path.stat().st_mtime, UTC)
