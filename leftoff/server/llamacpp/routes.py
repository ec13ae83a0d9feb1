"""llama-server's own routes: completion, tokenization, the chat template, properties and health.

Tokenization answers vLLM's clients too, such as lm_eval.
"""

import asyncio
import logging
import uuid
from concurrent.futures import Future
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leftoff import __version__
from leftoff.chat.meter import TokenMeter, TooManyTokensError
from leftoff.engine.vocabulary import Vocabulary
from leftoff.host.host import ModelHost
from leftoff.server.dialect import Dialect
from leftoff.server.http.endpoint import Endpoint, while_connected
from leftoff.server.http.errors import bad_field, missing_field
from leftoff.server.llamacpp import types as wire
from leftoff.server.llamacpp.writer import NativeWriter, default_settings
from leftoff.server.reply.response import EVENTS, answer, json_response
from leftoff.server.reply.waiting import WaitingRoom
from leftoff.server.request.aside import aside
from leftoff.server.request.attachments import attached_to
from leftoff.server.request.build import conversation_of, raw_jobs
from leftoff.server.request.fields import ChatRequest
from leftoff.server.request.raw_prompts import RawPrompts, token_ids
from leftoff.server.tenant import namespace_of

logger = logging.getLogger("leftoff.requests")

_MIN_TOKENS = 1 << 17  # that /tokenize accepts, even if the context is smaller: clients cut documents with it


class Native(Dialect):
    """The routes that OpenAI's API does not have."""

    def endpoints(self) -> list[Endpoint]:
        complete = WaitingRoom(self._hosts, EVENTS).before(self.completion)
        completion = Endpoint("POST", "/completion", "Text completion", complete, wire.NativeRequest)
        health = Endpoint("GET", "/health", "Whether the server can answer", self.health)
        return [
            completion,
            completion.at("/completions"),
            Endpoint("POST", "/tokenize", "Text to tokens", self.tokenize, wire.TokenizeRequest),
            Endpoint("POST", "/detokenize", "Tokens to text", self.detokenize, wire.DetokenizeRequest),
            Endpoint("GET", "/tokenizer_info", "The tokenizer, for vLLM's clients", self.tokenizer_info),
            Endpoint("POST", "/apply-template", "A chat as the template renders it", self.apply_template, ChatRequest),
            Endpoint("GET", "/props", "The model and default settings", self.props),
            Endpoint("POST", "/models/load", "Loads a model in its turn", self.load, wire.ModelRequest),
            Endpoint("POST", "/models/unload", "Lets a model sleep", self.unload, wire.ModelRequest),
            health,
            health.at("/v1/health"),
        ]

    async def completion(self, request: Request, body: wire.NativeRequest) -> Response:
        host = await self._hosts.of(body.model)
        jobs = await raw_jobs(
            host,
            request,
            body,
            lambda: RawPrompts.of(host).read(body.prompt, namespace_of(request, body.cache_salt)),
            num_each=body.n_cmpl or 1,
            num_logprobs=body.n_probs or None,
        )
        writer = NativeWriter(host.name_for(body.model, body.scales), host.model.vocabulary, host.context_tokens, body)
        return await answer(request, host, jobs, uuid.uuid4().hex, writer, stream=bool(body.stream))

    @while_connected
    async def tokenize(self, request: Request, body: wire.TokenizeRequest) -> Response:
        host = await self._hosts.of(body.model)
        tokens = await aside(host, lambda: _tokens(host, body), request)
        if body.content is None:
            return json_response({"tokens": tokens, "count": len(tokens), "max_model_len": host.context_tokens})
        vocabulary = host.model.vocabulary
        pieces = [_with_piece(vocabulary, token) for token in tokens] if body.with_pieces else tokens
        return json_response({"tokens": pieces})

    @while_connected
    async def detokenize(self, request: Request, body: wire.DetokenizeRequest) -> Response:
        host = await self._hosts.of(body.model)
        vocabulary = host.model.vocabulary
        text = await aside(host, lambda: vocabulary.text(token_ids(body.tokens, vocabulary, "tokens")), request)
        return json_response({"content": text, "prompt": text})  # as llama-server and as vLLM name it

    @while_connected
    async def tokenizer_info(self, request: Request) -> Response:
        host = await self._host_of(request)
        vocabulary = host.model.vocabulary
        return json_response(
            {
                "tokenizer_class": "gguf",
                "bos_token": vocabulary.token_text(vocabulary.bos) or None,
                "eos_token": vocabulary.token_text(vocabulary.eos) or None,
                "pad_token": None,
                "add_bos_token": vocabulary.adds_bos,
                "add_eos_token": vocabulary.adds_eos,
                "vocab_size": vocabulary.size,
                "model_max_length": host.context_tokens,
                "chat_template": host.prompts.template.source,
            }
        )

    @while_connected
    async def apply_template(self, request: Request, body: ChatRequest) -> Response:
        host = await self._hosts.of(body.model)
        attached = await attached_to(host, request, body)
        text = await aside(host, lambda: host.chats.text(conversation_of(host, body, attached=attached)), request)
        return json_response({"prompt": text})

    @while_connected
    async def props(self, request: Request) -> Response:
        """Describes the first model, or the one that the query names, as llama-server's router does."""
        host = await self._host_of(request)
        vocabulary = host.model.vocabulary
        settings = {
            "id": 0,
            "n_ctx": host.context_tokens,
            "params": default_settings(host.default_sampling, host.settings.max_tokens),
            "speculative": host.scheduler.drafter is not None,
            "is_processing": False,
        }
        return json_response(
            {
                "default_generation_settings": settings,
                "total_slots": host.settings.slots,
                "model_alias": host.name,
                "model_path": str(host.model.path),
                "chat_template": host.prompts.template.source,
                "chat_template_caps": {},
                "modalities": {"vision": host.prompts.sees_pictures, "audio": False},
                "bos_token": vocabulary.token_text(vocabulary.bos),
                "eos_token": vocabulary.token_text(vocabulary.eos),
                "build_info": f"leftoff-{__version__}",
                "is_sleeping": host.engine.is_asleep,
            }
        )

    async def load(self, _: Request, body: wire.ModelRequest) -> Response:
        """Answers at once: `GET /models` tells when it is loaded."""
        late = self._hosts.named(body.model)
        if late.status == "loaded":
            raise bad_field("model", f"{late.name} is already loaded")
        host = late.ready
        loading: Future[Any] = host.scheduler.waking.load() if host is not None else late.ask()
        loading.add_done_callback(partial(_log_failure, late.name))
        return json_response({"success": True})

    async def unload(self, _: Request, body: wire.ModelRequest) -> Response:
        """A model that is busy answers first what was asked."""
        late = self._hosts.named(body.model)
        host = late.opened
        if host is None or host.engine.is_asleep:
            raise bad_field("model", f"{late.name} is not loaded")
        if not host.model.may_sleep:
            problem = f"{late.name} was not loaded to sleep: start the server with --sleep-idle-seconds"
            raise bad_field("model", problem)
        await asyncio.wrap_future(host.rest())
        return json_response({"success": True})

    async def health(self, _: Request) -> Response:
        self._hosts.require_alive()
        return json_response({"status": "ok", "models": self._hosts.states})  # for routers that have no index


def _log_failure(name: str, loading: Future[Any]) -> None:
    """Logs what was wrong with a load, for whose end nobody waits."""
    if not loading.cancelled() and (error := loading.exception()) is not None:
        logger.warning("%s could not be loaded: %s", name, error)


def _tokens(host: ModelHost, body: wire.TokenizeRequest) -> list[int]:
    name, text, is_special = "content", body.content, body.add_special
    if text is None:
        name, text, is_special = "prompt", body.prompt, body.add_special_tokens
    if text is None:
        raise missing_field("content")
    vocabulary, limit = host.model.vocabulary, max(host.context_tokens, _MIN_TOKENS)
    try:
        TokenMeter(vocabulary, limit).check(text)
    except TooManyTokensError as error:
        raise bad_field(name, f"has more than the {limit} tokens that are made at once: send it in parts") from error
    if not body.parse_special:
        return [*map(int, vocabulary.tokenize(text, add_special=is_special, parse_special=False))]
    # In segments: for a whole text full of control tokens, llama.cpp takes the square of their number.
    inside, around = host.prompts.tokenizer.tokenise(text).tokens, vocabulary.tokenize("", add_special=is_special)
    return [*map(int, (*around[: vocabulary.adds_bos], *inside, *around[vocabulary.adds_bos :]))]


def _with_piece(vocabulary: Vocabulary, token: int) -> dict[str, Any]:
    """A piece that is no valid UTF-8 by itself is shown as a list of bytes."""
    piece = vocabulary.piece(token)
    try:
        return {"id": token, "piece": piece.decode()}
    except UnicodeDecodeError:
        return {"id": token, "piece": list(piece)}
