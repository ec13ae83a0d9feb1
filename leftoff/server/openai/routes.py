"""OpenAI's chat completions, completions and models, with llama-server's additional fields.

Sampling that a request does not set has llama-server's defaults, not OpenAI's.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leftoff.host.encoder import EncoderHost
from leftoff.host.host import ModelHost
from leftoff.host.late_host import LateHost
from leftoff.pdf import can_read_pdfs
from leftoff.scheduler.job import Job
from leftoff.server.dialect import Dialect
from leftoff.server.hosts import written_at
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import bad_field, not_yet
from leftoff.server.openai.types import CompletionRequest
from leftoff.server.openai.writer import STREAM, ChatWriter, Echo, Head, TextWriter
from leftoff.server.reply.response import answer, json_response
from leftoff.server.reply.usage import PromptChances
from leftoff.server.reply.waiting import WaitingRoom
from leftoff.server.request.aside import aside
from leftoff.server.request.build import chat_jobs, raw_jobs
from leftoff.server.request.fields import ChatRequest
from leftoff.server.request.job import ReplyJob
from leftoff.server.request.raw_prompts import RawPrompts
from leftoff.server.tenant import namespace_of

_MAX_CHANCES = 1 << 19  # log-probabilities of prompts in one answer: about 100 MB until it is sent


class OpenAI(Dialect):
    """Chat completions, completions and models."""

    def endpoints(self) -> list[Endpoint]:
        room = WaitingRoom(self._hosts, STREAM)
        chat = Endpoint("POST", "/v1/chat/completions", "Chat completion", room.before(self.chat), ChatRequest)
        complete = room.before(self.completions)
        text = Endpoint("POST", "/v1/completions", "Text completion", complete, CompletionRequest)
        models = Endpoint("GET", "/v1/models", "The models of this server", self.models)
        model = Endpoint("GET", "/v1/models/{id:path}", "The model of this name", self.model)
        # /completions without the version is llama-server's own
        return [chat, chat.at("/chat/completions"), text, models, models.at("/models"), model]

    async def chat(self, request: Request, body: ChatRequest) -> Response:
        _refuse_in_chats(body)
        host = await self._hosts.of(body.model)
        jobs = await chat_jobs(host, request, body)
        head = _head(host, "chatcmpl", body, len(jobs))
        return await answer(request, host, jobs, head.id, ChatWriter(head), stream=bool(body.stream))

    async def completions(self, request: Request, body: CompletionRequest) -> Response:
        _refuse_in_completions(body)
        host = await self._hosts.of(body.model)
        jobs = await raw_jobs(
            host,
            request,
            body,
            lambda: RawPrompts.of(host).read(body.prompt, namespace_of(request, body.cache_salt)),
            num_each=body.n or 1,
            num_logprobs=body.logprobs,
        )
        head = _head(host, "cmpl", body, len(jobs))
        echoes = [Echo()] * len(jobs)
        if body.echo:
            jobs = _scored(jobs, body.logprobs) if body.logprobs is not None else jobs
            echoes = await aside(host, lambda: [_echo(host, job) for job in jobs], request)
        writer = TextWriter(head, echoes)
        return await answer(request, host, jobs, head.id, writer, stream=bool(body.stream))

    async def models(self, _: Request) -> Response:
        return json_response({"object": "list", "data": self._cards(), "has_more": False})

    async def model(self, request: Request) -> Response:
        """Describes a model; one that is alone, by any name: requests may name any, and clients look for that."""
        name = request.path_params["id"]
        listed = next((card for card in self._cards() if card["id"] == name), None)
        if listed is not None:
            return json_response(listed)
        encoder = self._hosts.encoder(name)
        card = _encoder_card(encoder) if encoder is not None else _card(self._hosts.named(name))
        return json_response(card | {"id": name})

    def _cards(self) -> list[dict[str, Any]]:
        cards = [card for late in self._hosts.listed() for card in (_card(late), *_adapter_cards(late))]
        return [*cards, *map(_encoder_card, self._hosts.encoders)]


def _refuse_in_chats(body: ChatRequest) -> None:
    for name, instead in (("functions", "tools"), ("function_call", "tool_choice")):
        if getattr(body, name) is not None:
            raise bad_field(name, f"is deprecated, and not supported: use {instead}")


def _refuse_in_completions(body: CompletionRequest) -> None:
    if body.suffix:
        raise not_yet("suffix", body.suffix[:40], "leave it out")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise not_yet("best_of", body.best_of, "leave it out, or give it the value of n")


def _scored(jobs: Sequence[ReplyJob], num_top: int) -> list[ReplyJob]:
    """The jobs, with the log-probabilities of their prompts.

    A client that asks for a single token wants those of the prompt, and expects one token after it: the reply does not
    end before that, even where the model would write nothing.
    """
    num_chances = sum(job.prompt.length for job in jobs) * (1 + num_top)
    if num_chances > _MAX_CHANCES:
        problem = f"there would be {num_chances} log-probabilities: at most {_MAX_CHANCES} are told at once"
        raise bad_field("logprobs", f"{problem}, so send fewer prompts, or a lower number")
    return [
        replace(job, score=PromptChances(job.prompt, num_top), ignore_end=job.ignore_end or job.max_tokens == 1)
        for job in jobs
    ]


def _echo(host: ModelHost, job: Job) -> Echo:
    tokens = job.prompt.tokens
    text = host.model.vocabulary.text(tokens)
    return Echo(text, int(tokens[0]), job.score if isinstance(job.score, PromptChances) else None)


def _head(host: ModelHost, prefix: str, body: ChatRequest | CompletionRequest, num_replies: int) -> Head:
    return Head(
        id=f"{prefix}-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=host.name_for(body.model, body.scales),
        fingerprint=f"leftoff-{host.engine.memory.fingerprint[:12]}",
        vocabulary=host.model.vocabulary,
        body=body,
        num_replies=num_replies,
    )


def _card(late: LateHost) -> dict[str, Any]:
    """A model for OpenAI's and Anthropic's clients: both ask under /v1/models, and ignore unknown fields."""
    host = late.opened
    file = host.model.path if host is not None else late.seat.path
    card = _described(late.name, file, late.own_aliases, late.status)
    return card | (_meta(host) if host is not None else {})


def _adapter_cards(late: LateHost) -> list[dict[str, Any]]:
    """The model with each of its adapters, as models of their own."""
    if not late.adapted:
        return []
    card = _card(late) | {"aliases": [], "parent": late.name}
    return [card | {"id": name, "display_name": name} for name in late.adapted]


def _described(name: str, file: Path | None, aliases: Sequence[str], status: str) -> dict[str, Any]:
    created = written_at(file)
    return {
        "id": name,
        "object": "model",
        "created": int(created.timestamp()),
        "owned_by": "leftoff",
        "type": "model",
        "display_name": name,
        "created_at": created,
        "aliases": aliases,
        "status": {"value": status},
    }


def _encoder_card(host: EncoderHost) -> dict[str, Any]:
    card = _described(host.name, host.model.path, host.settings.alias[1:], "loaded")
    return card | {"meta": {"n_ctx": host.context_tokens, "n_embd": host.shape.width, "ranks": host.shape.ranks}}


def _meta(host: ModelHost) -> dict[str, Any]:
    model = host.model
    return {
        "meta": {
            "n_vocab": model.vocabulary.size,
            "n_ctx": host.context_tokens,
            "n_ctx_train": model.trained_context,
            "n_params": model.num_parameters,
            "size": model.size_bytes,
            "vision": host.prompts.sees_pictures,
            "pdf": can_read_pdfs(),
        }
    }
