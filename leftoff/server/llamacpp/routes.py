"""llama-server's own routes: completion, tokenization, the chat template, properties and health.

Tokenization answers vLLM's clients too, such as lm_eval.
"""

import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leftoff import __version__
from leftoff.chat.meter import TokenMeter, TooManyTokensError
from leftoff.server.http.body import read_body
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import bad_field, missing_field, stopping
from leftoff.server.llamacpp import types as wire
from leftoff.server.llamacpp.writer import NativeWriter, default_settings
from leftoff.server.reply.response import answer, json_response
from leftoff.server.request.build import conversation_of, raw_jobs
from leftoff.server.request.fields import ChatFields
from leftoff.server.request.raw_prompts import RawPrompts, token_ids
from leftoff.server.service import Dialect, Service
from leftoff.server.tenant import namespace_of

_LEAST_TOKENS = 1 << 17  # that /tokenize accepts, even if the context is smaller: clients cut documents with it


class Native(Dialect):
    """The routes that OpenAI's API does not have."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._vocabulary = service.model.vocabulary
        self._raw_prompts = RawPrompts(service.prompts, self._vocabulary)
        self._meter = TokenMeter(self._vocabulary, max(service.context_tokens, _LEAST_TOKENS))

    def endpoints(self) -> list[Endpoint]:
        completion = Endpoint("POST", "/completion", "Text completion", self.completion, wire.NativeRequest)
        health = Endpoint("GET", "/health", "Whether the server can answer", self.health)
        return [
            completion,
            completion.at("/completions"),
            Endpoint("POST", "/tokenize", "Text to tokens", self.tokenize, wire.TokenizeRequest),
            Endpoint("POST", "/detokenize", "Tokens to text", self.detokenize, wire.DetokenizeRequest),
            Endpoint("GET", "/tokenizer_info", "The tokenizer, for vLLM's clients", self.tokenizer_info),
            Endpoint("POST", "/apply-template", "A chat as the template renders it", self.apply_template, ChatFields),
            Endpoint("GET", "/props", "The model and default settings", self.props),
            health,
            health.at("/v1/health"),
        ]

    async def completion(self, request: Request) -> Response:
        body = await read_body(request, wire.NativeRequest)
        jobs = await raw_jobs(
            self._service,
            request,
            body,
            lambda: self._raw_prompts.read(body.prompt, namespace_of(request, body.cache_salt)),
            num_each=body.n_cmpl or 1,
            num_logprobs=body.n_probs or None,
        )
        writer = NativeWriter(self._service.model_name, self._vocabulary, self._service.context_tokens, body)
        return await answer(request, self._service, jobs, uuid.uuid4().hex, writer, stream=bool(body.stream))

    async def tokenize(self, request: Request) -> Response:
        body = await read_body(request, wire.TokenizeRequest)
        tokens = await self._service.aside(lambda: self._tokens(body), request)
        if body.content is None:
            return json_response(
                {"tokens": tokens, "count": len(tokens), "max_model_len": self._service.context_tokens}
            )
        return json_response({"tokens": [*map(self._with_piece, tokens)] if body.with_pieces else tokens})

    def _tokens(self, body: wire.TokenizeRequest) -> list[int]:
        name, text, is_special = "content", body.content, body.add_special
        if text is None:
            name, text, is_special = "prompt", body.prompt, body.add_special_tokens
        if text is None:
            raise missing_field("content")
        try:
            self._meter.check(text)
        except TooManyTokensError as error:
            problem = f"has more than the {self._meter.context_tokens} tokens that are made at once: send it in parts"
            raise bad_field(name, problem) from error
        tokens: list[int] = self._vocabulary.tokenize(
            text, add_special=is_special, parse_special=body.parse_special
        ).tolist()
        return tokens

    async def detokenize(self, request: Request) -> Response:
        body = await read_body(request, wire.DetokenizeRequest)
        vocabulary = self._vocabulary
        text = await self._service.aside(lambda: vocabulary.text(token_ids(body.tokens, vocabulary, "tokens")), request)
        return json_response({"content": text, "prompt": text})  # as llama-server and as vLLM name it

    async def tokenizer_info(self, _: Request) -> Response:
        vocabulary = self._vocabulary
        return json_response(
            {
                "tokenizer_class": "gguf",
                "bos_token": self._text(vocabulary.bos) or None,
                "eos_token": self._text(vocabulary.eos) or None,
                "pad_token": None,
                "add_bos_token": vocabulary.adds_bos,
                "add_eos_token": vocabulary.adds_eos,
                "vocab_size": vocabulary.size,
                "model_max_length": self._service.context_tokens,
                "chat_template": self._service.prompts.template.source,
            }
        )

    async def apply_template(self, request: Request) -> Response:
        body = await read_body(request, ChatFields)
        service = self._service
        text = await service.aside(lambda: service.render(conversation_of(service, body)), request)
        return json_response({"prompt": text})

    async def props(self, _: Request) -> Response:
        service = self._service
        settings = {
            "id": 0,
            "n_ctx": service.context_tokens,
            "params": default_settings(service.default_sampling, service.settings.max_tokens),
            "speculative": service.scheduler.drafter is not None,
            "is_processing": False,
        }
        return json_response(
            {
                "default_generation_settings": settings,
                "total_slots": service.settings.slots,
                "model_alias": service.model_name,
                "model_path": str(service.model.path),
                "chat_template": service.prompts.template.source,
                "chat_template_caps": {},
                "modalities": {"vision": False, "audio": False},
                "bos_token": self._text(self._vocabulary.bos),
                "eos_token": self._text(self._vocabulary.eos),
                "build_info": f"leftoff-{__version__}",
                "is_sleeping": False,
            }
        )

    async def health(self, _: Request) -> Response:
        if not self._service.worker.is_alive:
            raise stopping()
        return json_response({"status": "ok"})

    def _with_piece(self, token: int) -> dict[str, Any]:
        """A piece that is no valid UTF-8 by itself is shown as a list of bytes."""
        piece = self._vocabulary.piece(token)
        try:
            return {"id": token, "piece": piece.decode()}
        except UnicodeDecodeError:
            return {"id": token, "piece": list(piece)}

    def _text(self, token: int | None) -> str:
        return "" if token is None else self._vocabulary.piece(token).decode("utf-8", "replace")
