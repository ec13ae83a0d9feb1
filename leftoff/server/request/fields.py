"""How a reply is made, on the wire: the fields that all dialects share, and what they mean here."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from leftoff.server.request.sampling import Limit, SamplingFields

Schema = dict[str, Any]
# Each is looked for in every piece of the reply, on the engine's thread: a few milliseconds a token at the very most.
Stop = Annotated[str, Meta(max_length=256)]
Stops = Annotated[list[Stop], Meta(max_length=128)]


class StructuredOutputs(Struct):
    """vLLM's way to ask for a form: exactly one of them."""

    json: Schema | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class JsonSchema(Struct):
    schema: Schema | None = None
    name: str | None = None
    strict: bool | None = None


class ResponseFormat(Struct):
    type: str = "text"
    json_schema: JsonSchema | None = None
    schema: Schema | None = None  # llama-server's place for it
    pattern: str | None = None  # with type "regex"

    def field(self, path: str) -> str:
        """What a client calls a part of it."""
        return f"response_format.{path}"


class ForeignFormat(ResponseFormat, kw_only=True):
    """Of another dialect, whose clients know it, and all that is in it, by another name."""

    place: str

    def field(self, path: str) -> str:  # noqa: ARG002
        return self.place


class GenerationFields(SamplingFields, kw_only=True):
    stop: Stop | Stops | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    n_predict: Limit | None = None
    ignore_eos: bool | None = None

    stream: bool | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    cache_prompt: bool | None = None  # the cache never changes what is said: there is nothing to turn off
    cache_salt: str | None = None
    user: str | None = None

    response_format: ResponseFormat | None = None  # OpenAI's
    grammar: str | None = None  # llama-server's, and so is the next
    json_schema: Schema | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | str | None = None  # vLLM's former names for the same
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def length_limit(self) -> int | None:
        limits = (self.max_completion_tokens, self.max_tokens, self.n_predict)
        return next((limit for limit in limits if limit is not None), None)
