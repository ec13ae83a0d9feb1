"""The routes of Ollama that chat clients use: chat, generate, and the description of the loaded model."""

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from blake3 import blake3
from starlette.requests import Request
from starlette.responses import Response

from leftoff.chat.formats.parser import Output
from leftoff.chat.prompts import PromptMaker
from leftoff.config import Settings
from leftoff.engine.fingerprint import model_parts
from leftoff.engine.model import Model
from leftoff.engine.model_settings import ModelSettings
from leftoff.host.encoder import EncoderHost
from leftoff.host.host import ModelHost
from leftoff.host.late_host import LateHost
from leftoff.host.pictures import projector_file
from leftoff.lru import LruCache
from leftoff.server.dialect import Dialect
from leftoff.server.hosts import Hosts, written_at
from leftoff.server.http.endpoint import Endpoint, Handler, attended
from leftoff.server.http.errors import ErrorShape
from leftoff.server.ollama import types as wire
from leftoff.server.ollama.convert import messages_as_chat, prompt_as_chat
from leftoff.server.ollama.writer import STREAM, OllamaWriter, error_body
from leftoff.server.reply.response import Json, answer, json_response
from leftoff.server.reply.waiting import WaitingRoom
from leftoff.server.request.attachments import attached_to
from leftoff.server.request.build import chat_jobs, raw_jobs
from leftoff.server.request.fields import ChatRequest
from leftoff.server.request.job import ReplyJob

_OLLAMA_VERSION = "0.12.6"  # clients refuse servers that are older than the features they use
_NEVER = datetime(2318, 1, 1, tzinfo=UTC)
_LONG_S = 1e9
_MAX_OUTLINES = 256

Body = wire.OllamaChatRequest | wire.OllamaGenerateRequest


class Ollama(Dialect):
    """Chat, generate, and the model list."""

    error_shapes: ClassVar[Mapping[str, ErrorShape]] = {"/api/": error_body}

    def __init__(self, hosts: Hosts) -> None:
        super().__init__(hosts)
        self._outlines: LruCache[tuple[Settings, int], dict[str, Any]] = LruCache(max_entries=_MAX_OUTLINES)

    def endpoints(self) -> list[Endpoint]:
        chat, generate = self._unless_unloaded(self.chat), self._unless_unloaded(self.generate)
        return [
            Endpoint("POST", "/api/chat", "Chat completion", chat, wire.OllamaChatRequest),
            Endpoint("POST", "/api/generate", "Completion of a prompt", generate, wire.OllamaGenerateRequest),
            Endpoint("POST", "/api/show", "Description of a model", self.show, wire.ShowRequest),
            Endpoint("GET", "/api/tags", "The models of this server", self.tags),
            Endpoint("GET", "/api/ps", "The models that are loaded", self.ps),
            Endpoint("GET", "/api/version", "The version of Ollama that is emulated", self.version),
        ]

    def _unless_unloaded(self, handler: Handler) -> Handler:
        """The handler of a request once its model is open, for which a request to unload it does not wait."""
        waited = WaitingRoom(self._hosts, STREAM, _silence, _streams).before(handler)

        async def handle(request: Request, body: Body) -> Response:
            if not body.unloads or not body.is_empty:
                return await waited(request, body)
            late = self._hosts.named(body.model)
            if (host := late.opened) is not None and not host.settings.pinned:
                await asyncio.wrap_future(host.rest())
            return json_response(_writer(late.name, body).chunk(end={"done_reason": "unload"}))

        return handle

    async def chat(self, request: Request, body: wire.OllamaChatRequest) -> Response:
        host = await self._hosts.of(body.model)
        if body.is_empty:
            return await _loaded(request, host, body)
        jobs = await chat_jobs(host, request, messages_as_chat(body))
        return await _answer(request, host, jobs, body)

    async def generate(self, request: Request, body: wire.OllamaGenerateRequest) -> Response:
        host = await self._hosts.of(body.model)
        if body.is_empty:
            return await _loaded(request, host, body)
        chat = prompt_as_chat(body)
        jobs = await (_raw_jobs if body.raw else chat_jobs)(host, request, chat)
        return await _answer(request, host, jobs, body)

    async def show(self, _: Request, body: wire.ShowRequest) -> Response:
        """A model that nobody has asked yet is described by its file: it is not loaded for that."""
        wanted = body.model or body.name
        encoder = self._hosts.encoder(wanted)
        if encoder is not None:
            capabilities = [] if encoder.shape.ranks else ["embedding"]
            return json_response(_described(encoder.model, encoder.context_tokens, capabilities))
        late = self._hosts.named(wanted)
        file = _file(late)
        if late.opened is None and file is not None:
            return json_response(await asyncio.to_thread(self._outlined, late.settings, file))
        host = await self._hosts.of(wanted)
        return json_response(_outline(host.model, host.prompts, host.context_tokens, sees=host.prompts.sees_pictures))

    def _outlined(self, settings: Settings, file: Path) -> dict[str, Any]:
        key = (settings, file.stat().st_mtime_ns)  # models of one file may differ by template, context and projector
        known = self._outlines.get(key) or _outline_of_file(settings, file)
        self._outlines.put(key, known)
        return known

    async def tags(self, _: Request) -> Response:
        listed = [model for late in self._hosts.listed() for model in _with_adapted(late)]
        return json_response({"models": [*listed, *map(_encoder, self._hosts.encoders)]})

    async def ps(self, _: Request) -> Response:
        return json_response({"models": [_running(host) for host in self._hosts if not host.engine.is_asleep]})

    async def version(self, _: Request) -> Response:
        return json_response({"version": _OLLAMA_VERSION})


async def _raw_jobs(host: ModelHost, request: Request, chat: ChatRequest) -> list[ReplyJob]:
    """The prompt without the model's template."""
    attached = await attached_to(host, request, chat)
    prompt = chat.messages[-1].content or ""
    text = prompt if isinstance(prompt, str) else attached.text(prompt, "")
    return await raw_jobs(
        host,
        request,
        chat,
        lambda: [host.prompts.from_text(text, attached.pictures)],
        output=Output(host.prompts.format, splits_reasoning=False),
    )


async def _answer(request: Request, host: ModelHost, jobs: list[ReplyJob], body: Body) -> Response:
    scales = body.options.scales if body.options is not None else None
    writer = _writer(host.name_for(body.model, scales), body)
    response = await answer(request, host, jobs, uuid.uuid4().hex, writer, stream=_streams(body))
    _keep(host, body)  # once it is asked: before, the model might sleep and wake for it
    return response


async def _loaded(request: Request, host: ModelHost, body: Body) -> Response:
    """Answers an empty request: clients send one to load the model."""
    await attended(request.receive, asyncio.wrap_future(host.scheduler.waking.load()))
    _keep(host, body)
    return json_response(_writer(host.name_for(body.model), body).chunk(end={"done_reason": "load"}))


def _keep(host: ModelHost, body: Body) -> None:
    """Sets how long the model may be idle before it sleeps, if the request says that: not of one that is pinned."""
    if body.keep_s is not None and host.model.may_sleep and not host.settings.pinned:
        host.scheduler.gate.keep(body.keep_s)


def _streams(body: Body) -> bool:
    return body.stream is not False


def _silence(body: Body) -> Json:
    """A chunk without words: a stream of lines has no comments."""
    return _writer(body.model, body).chunk()


def _writer(model: str, body: Body) -> OllamaWriter:
    return OllamaWriter(full_name(model), body.is_chat)


def full_name(name: str) -> str:
    """Ollama's names always have a tag."""
    return name if ":" in name else f"{name}:latest"


def _listed(late: LateHost) -> dict[str, Any]:
    """The model in a list."""
    if (host := late.opened) is not None:
        return _opened(host)
    file = _file(late)
    sizes = [part.stat().st_size for part in model_parts(file)] if file is not None else []
    digest = blake3(f"{file} {sizes}".encode()).hexdigest()  # Ollama's own client wants one of this length
    return _card(late.name, file, sum(sizes), digest, {"format": "gguf"})


def _with_adapted(late: LateHost) -> list[dict[str, Any]]:
    """The model in a list, and with each of its adapters."""
    listed = _listed(late)
    return [listed, *(listed | {"name": name, "model": name} for name in late.adapted)]


def _encoder(host: EncoderHost) -> dict[str, Any]:
    model = host.model
    return _card(host.name, model.path, model.size_bytes, model.fingerprint, _details(model))


def _file(late: LateHost) -> Path | None:
    """The file of a model that is not open, if it is here."""
    path = Path(late.settings.model).expanduser()
    return path if all(part.is_file() for part in model_parts(path)) else None


def _opened(host: ModelHost) -> dict[str, Any]:
    model = host.model
    return _card(host.name, model.path, model.size_bytes, host.engine.memory.fingerprint, _details(model))


def _card(name: str, file: Path | None, nbytes: int, digest: str, details: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": full_name(name),
        "model": full_name(name),
        "modified_at": written_at(file),
        "size": nbytes,
        "digest": digest,
        "details": details,
    }


def _running(host: ModelHost) -> dict[str, Any]:
    left_s = host.scheduler.gate.sleep_after_s - host.scheduler.waking.idle_s
    expires_at = datetime.now(UTC) + timedelta(seconds=max(0.0, left_s)) if left_s < _LONG_S else _NEVER
    return _opened(host) | {"expires_at": expires_at, "size_vram": 0, "context_length": host.context_tokens}


def _outline_of_file(settings: Settings, file: Path) -> dict[str, Any]:
    template = Path(settings.chat_template_file).read_text("utf-8") if settings.chat_template_file else None
    with closing(Model(file, ModelSettings(vocab_only=True))) as model:
        trained = model.number("context_length")
        sees = projector_file(settings.mmproj, file) is not None
        return _outline(model, PromptMaker(model, template), settings.ctx or trained, sees=sees)


def _outline(model: Model, prompts: PromptMaker, context_tokens: int, *, sees: bool) -> dict[str, Any]:
    """A model that writes, in full."""
    capabilities = {
        "completion": True,
        "tools": prompts.quirks.shows_tools,
        "thinking": prompts.template.mentions(prompts.format.reasoning.begin.strip()),
        "vision": sees,
    }
    names = [name for name, is_there in capabilities.items() if is_there]
    return _described(model, context_tokens, names, prompts.template.source)


def _described(model: Model, context_tokens: int, capabilities: list[str], template: str = "") -> dict[str, Any]:
    return {
        "template": template,
        "details": _details(model),
        "model_info": {
            "general.architecture": model.architecture,
            "general.basename": model.name,
            "general.parameter_count": model.num_parameters,
            f"{model.architecture}.context_length": context_tokens,
        },
        "capabilities": capabilities,
        "modified_at": written_at(model.path),
        "modelfile": "",
        "parameters": "",
        "license": "",
    }


def _details(model: Model) -> dict[str, Any]:
    return {
        "family": model.architecture,
        "families": [model.architecture],
        "parameter_size": _size(model.num_parameters),
        # llama.cpp describes a model by family, size and quantization; without its weights, not at all
        "quantization_level": "".join(model.description.split(maxsplit=2)[-1:]),
        "format": "gguf",
        "parent_model": "",
    }


def _size(num_parameters: int) -> str:
    return f"{num_parameters / 1e9:.1f}B" if num_parameters >= 1e9 else f"{num_parameters / 1e6:.2f}M"
