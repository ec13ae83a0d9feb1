"""llama-server's own dialect: completion, tokens, templates, and a look at the server and its slots."""

import uuid

from starlette.requests import Request
from starlette.responses import Response

from leftoff import __version__
from leftoff.cache.sequences import EngineSequence
from leftoff.chat.meter import TokenMeter, TooManyTokensError
from leftoff.scheduler.run import Run
from leftoff.server.http.body import read_body
from leftoff.server.http.endpoint import Dialect, Endpoint
from leftoff.server.http.errors import ApiError, bad_field, stopping
from leftoff.server.llamacpp.types import (
    DefaultSettings,
    DetokenizeReply,
    DetokenizeRequest,
    NativeRequest,
    NextToken,
    Props,
    SlotState,
    TemplateReply,
    TokenizeReply,
    TokenizeRequest,
    TokenPiece,
)
from leftoff.server.llamacpp.writer import NativeWriter, settings_of, wire_settings
from leftoff.server.reply.response import answer, json_response
from leftoff.server.reply.stream import ReplyStream
from leftoff.server.request.build import conversation_of, raw_jobs
from leftoff.server.request.fields import ChatFields
from leftoff.server.request.raw_prompts import RawPrompts, token_ids
from leftoff.server.service import Service
from leftoff.server.tenant import Tenant, tenant_of

_LEAST_TOKENS = 1 << 17  # that /tokenize makes, also where the context is smaller: documents are cut up by it


class Native(Dialect):
    """The handlers, and where they are reached."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._vocabulary = service.model.vocabulary
        self._raw_prompts = RawPrompts(service.prompts, self._vocabulary)
        self._meter = TokenMeter(self._vocabulary, max(service.context_tokens, _LEAST_TOKENS))

    def endpoints(self) -> list[Endpoint]:
        completion = Endpoint("POST", "/completion", "Goes on from a text", self.completion, NativeRequest)
        health = Endpoint("GET", "/health", "Whether the server can answer", self.health)
        return [
            completion,
            completion.at("/completions"),
            Endpoint("POST", "/tokenize", "Text to tokens", self.tokenize, TokenizeRequest),
            Endpoint("POST", "/detokenize", "Tokens to text", self.detokenize, DetokenizeRequest),
            Endpoint("POST", "/apply-template", "A chat as the model reads it", self.apply_template, ChatFields),
            Endpoint("GET", "/props", "The model and the defaults", self.props),
            Endpoint("GET", "/slots", "What each slot is doing", self.slots),
            health,
            health.at("/v1/health"),
        ]

    async def completion(self, request: Request) -> Response:
        body = await read_body(request, NativeRequest)
        jobs = await raw_jobs(
            self._service,
            request,
            body,
            lambda: self._raw_prompts.read(body.prompt),
            num_each=body.n_cmpl or 1,
            num_logprobs=body.n_probs or None,
        )
        writer = NativeWriter(
            self._service.model_name,
            self._vocabulary,
            self._service.context_tokens,
            jobs,
            is_list=len(jobs) > 1,
            is_stream=bool(body.stream),
            returns_tokens=bool(body.return_tokens),
            shows_progress=bool(body.return_progress),
            times_tokens=bool(body.timings_per_token),
        )
        return await answer(request, self._service, jobs, uuid.uuid4().hex, writer, stream=bool(body.stream))

    async def tokenize(self, request: Request) -> Response:
        body = await read_body(request, TokenizeRequest)
        return json_response(await self._service.aside(lambda: self._tokenized(body), request))

    def _tokenized(self, body: TokenizeRequest) -> TokenizeReply:
        try:
            self._meter.check(body.content)
        except TooManyTokensError as error:
            problem = f"has more than the {self._meter.context_tokens} tokens that are made at once: send it in parts"
            raise bad_field("content", problem) from error
        tokens: list[int] = self._vocabulary.tokenize(
            body.content, add_special=body.add_special, parse_special=body.parse_special
        ).tolist()
        return TokenizeReply([*map(self._piece, tokens)] if body.with_pieces else tokens)

    async def detokenize(self, request: Request) -> Response:
        body = await read_body(request, DetokenizeRequest)
        return json_response(await self._service.aside(lambda: self._detokenized(body), request))

    def _detokenized(self, body: DetokenizeRequest) -> DetokenizeReply:
        tokens = token_ids(body.tokens, self._vocabulary, "tokens")
        return DetokenizeReply(self._vocabulary.detokenize(tokens).decode("utf-8", "replace"))

    async def apply_template(self, request: Request) -> Response:
        body = await read_body(request, ChatFields)
        rendered = await self._service.aside(
            lambda: self._service.render(conversation_of(self._service, body)), request
        )
        return json_response(TemplateReply(rendered))

    async def props(self, _: Request) -> Response:
        service = self._service
        params = wire_settings(service.default_sampling, max_tokens=service.settings.max_tokens)
        return json_response(
            Props(
                default_generation_settings=DefaultSettings(service.context_tokens, params),
                total_slots=service.settings.slots,
                model_alias=service.model_name,
                model_path=str(service.model.path),
                chat_template=service.prompts.template.source,
                chat_template_caps={},
                modalities={"vision": False, "audio": False},
                bos_token=self._text(self._vocabulary.bos),
                eos_token=self._text(self._vocabulary.eos),
                build_info=f"leftoff-{__version__}",
            )
        )

    async def slots(self, request: Request) -> Response:
        tenant = tenant_of(request)
        states = await self._service.between_steps(lambda: self._slot_states(tenant))
        if request.query_params.get("fail_on_no_slot") and all(state.is_processing for state in states):
            raise ApiError(503, "every slot is at work", code="no_slot", kind="unavailable_error")
        return json_response(states)

    async def health(self, _: Request) -> Response:
        if not self._service.worker.is_alive:
            raise stopping()
        return json_response({"status": "ok"})

    def _slot_states(self, tenant: Tenant) -> list[SlotState]:
        runs = {run.turn.seq: run for run in self._service.scheduler.runs if tenant.sees(run.job.namespace)}
        return [
            self._slot_state(sequence, runs.get(sequence.seq), tenant)
            for sequence in self._service.cache.sequences.slots
        ]

    def _slot_state(self, sequence: EngineSequence, run: Run | None, tenant: Tenant) -> SlotState:
        state = SlotState(sequence.seq, self._service.context_tokens, sequence.is_busy)
        if tenant.is_alone or tenant.sees(sequence.namespace):
            state.n_tokens = sequence.length
        if run is None:
            return state
        job, report, stream = run.job, run.turn.report, run.sink
        num_generated = run.timings.num_generated
        state.n_prompt_tokens = report.prompt_tokens
        state.n_prompt_tokens_cache = report.reused
        state.n_prompt_tokens_processed = min(run.turn.position, report.prompt_tokens) - report.reused
        num_left = -1 if job.max_tokens is None else job.max_tokens - num_generated
        state.next_token = [NextToken(run.finish is None, num_left, num_generated)]
        if isinstance(stream, ReplyStream):
            state.id_task = stream.id
            state.params = settings_of(stream.job, is_stream=True)
        return state

    def _piece(self, token: int) -> TokenPiece:
        piece = self._vocabulary.piece(token)
        try:
            return TokenPiece(token, piece.decode())
        except UnicodeDecodeError:
            return TokenPiece(token, list(piece))

    def _text(self, token: int | None) -> str:
        return "" if token is None else self._vocabulary.piece(token).decode("utf-8", "replace")
