"""The routes of Ollama that chat clients use: chat, generate, and the description of the loaded model."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import ClassVar

from starlette.requests import Request
from starlette.responses import Response

from leftoff.chat.formats.parser import Output
from leftoff.server.http.body import read_body
from leftoff.server.http.endpoint import Dialect, Endpoint
from leftoff.server.http.errors import ApiError, ErrorShape
from leftoff.server.ollama.convert import messages_as_chat, prompt_as_chat
from leftoff.server.ollama.types import (
    Details,
    ModelCard,
    ModelDescription,
    ModelList,
    OllamaChatRequest,
    OllamaGenerateRequest,
    ShowRequest,
    Version,
)
from leftoff.server.ollama.writer import OllamaWriter, Shape, Words, chat_chunk, error_body, generate_chunk, loaded
from leftoff.server.reply.response import answer, json_response
from leftoff.server.request.build import chat_jobs, raw_jobs
from leftoff.server.request.job import ReplyJob
from leftoff.server.service import Service

_OLLAMA_VERSION = "0.12.6"  # clients refuse servers that are older than the features they use
_NEVER = datetime(2318, 1, 1, tzinfo=UTC)


class Ollama(Dialect):
    """Chat, generate, and the model list."""

    error_shapes: ClassVar[Mapping[str, ErrorShape]] = {"/api/": error_body}

    def __init__(self, service: Service) -> None:
        self._service = service

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("POST", "/api/chat", "Goes on from a chat", self.chat, OllamaChatRequest),
            Endpoint("POST", "/api/generate", "Answers a prompt", self.generate, OllamaGenerateRequest),
            Endpoint("POST", "/api/show", "The model in full", self.show, ShowRequest),
            Endpoint("GET", "/api/tags", "The model that is loaded", self.tags),
            Endpoint("GET", "/api/ps", "The model that runs", self.ps),
            Endpoint("GET", "/api/version", "The version of Ollama whose dialect this is", self.version),
        ]

    async def chat(self, request: Request) -> Response:
        body = await read_body(request, OllamaChatRequest)
        if not body.messages:
            return self._loaded(chat_chunk, unloads=body.unloads)
        jobs = await chat_jobs(self._service, request, messages_as_chat(body))
        return await self._answer(request, jobs, chat_chunk, stream=body.stream is not False)

    async def generate(self, request: Request) -> Response:
        body = await read_body(request, OllamaGenerateRequest)
        if not body.prompt:
            return self._loaded(generate_chunk, unloads=body.unloads)
        jobs = await (self._raw_jobs if body.raw else self._chat_jobs)(request, body)
        return await self._answer(request, jobs, generate_chunk, stream=body.stream is not False)

    async def show(self, request: Request) -> Response:
        body = await read_body(request, ShowRequest)
        wanted, name = body.model or body.name, self._service.model_name
        if full_name(wanted) != full_name(name):
            raise ApiError(404, f"there is no model {wanted!r} here: this server runs {name!r}")
        return json_response(_described(self._service))

    async def tags(self, _: Request) -> Response:
        return json_response(ModelList([_listed(self._service)]))

    async def ps(self, _: Request) -> Response:
        return json_response(ModelList([_running(self._service)]))

    async def version(self, _: Request) -> Response:
        return json_response(Version(_OLLAMA_VERSION))

    async def _chat_jobs(self, request: Request, body: OllamaGenerateRequest) -> list[ReplyJob]:
        return await chat_jobs(self._service, request, prompt_as_chat(body))

    async def _raw_jobs(self, request: Request, body: OllamaGenerateRequest) -> list[ReplyJob]:
        output = Output(self._service.prompts.format, splits_reasoning=False)
        return await raw_jobs(
            self._service,
            request,
            prompt_as_chat(body),
            lambda: [self._service.prompts.from_text(body.prompt)],
            output=output,
        )

    async def _answer(self, request: Request, jobs: list[ReplyJob], shape: Shape, *, stream: bool) -> Response:
        writer = OllamaWriter(full_name(self._service.model_name), shape)
        return await answer(request, self._service, jobs, uuid.uuid4().hex, writer, stream=stream)

    def _loaded(self, shape: Shape, *, unloads: bool) -> Response:
        """Answer an empty request: clients send one to load or unload the model, which here is always loaded."""
        return json_response(shape(full_name(self._service.model_name), Words(), loaded(unloads=unloads)))


def full_name(name: str) -> str:
    """Ollama's names always have a tag."""
    return name if ":" in name else f"{name}:latest"


def _listed(service: Service) -> ModelCard:
    name = full_name(service.model_name)
    digest = service.engine.memory.fingerprint
    return ModelCard(name, name, _modified_at(service), service.model.size_bytes, digest, _details(service))


def _running(service: Service) -> ModelCard:
    card = _listed(service)
    card.expires_at, card.size_vram, card.context_length = _NEVER, 0, service.context_tokens
    return card


def _described(service: Service) -> ModelDescription:
    model, prompts = service.model, service.prompts
    architecture = model.architecture
    capabilities = {
        "completion": True,
        "tools": prompts.quirks.shows_tools,
        "thinking": prompts.format.reasoning is not None,
    }
    return ModelDescription(
        template=prompts.template.source,
        details=_details(service),
        model_info={
            "general.architecture": architecture,
            "general.basename": model.name,
            "general.parameter_count": model.num_parameters,
            f"{architecture}.context_length": service.context_tokens,
        },
        capabilities=[name for name, is_there in capabilities.items() if is_there],
        modified_at=_modified_at(service),
    )


def _details(service: Service) -> Details:
    model = service.model
    # llama.cpp describes a model by family, size and quantization
    quantization = model.description.split(maxsplit=2)[-1]
    return Details(model.architecture, [model.architecture], _size(model.num_parameters), quantization)


def _size(num_parameters: int) -> str:
    return f"{num_parameters / 1e9:.1f}B" if num_parameters >= 1e9 else f"{num_parameters / 1e6:.2f}M"


def _modified_at(service: Service) -> datetime:
    return datetime.fromtimestamp(service.model.path.stat().st_mtime, UTC)
