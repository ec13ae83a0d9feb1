"""How a reply is made, on the wire: the fields that all dialects share, and what they mean here."""

from typing import Any

from leftoff.api.errors import not_yet
from leftoff.api.sampling import Limit, SamplingFields


class GenerationFields(SamplingFields, kw_only=True):
    stop: str | list[str] | None = None
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

    grammar: str | None = None
    json_schema: dict[str, Any] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def length_limit(self) -> int | None:
        limits = (self.max_completion_tokens, self.max_tokens, self.n_predict)
        return next((limit for limit in limits if limit is not None), None)

    def refuse_what_is_not_there(self) -> None:
        """Better a clear no than a reply that ignores what was asked for."""
        if self.grammar:
            raise not_yet("grammar", self.grammar[:40], "leave it out")
        if self.json_schema is not None:
            raise not_yet("json_schema", "a schema", "leave it out")
