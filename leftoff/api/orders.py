"""From a parsed request to the orders that the service takes: the same for every dialect."""

from collections.abc import Sequence
from dataclasses import replace

from starlette.requests import Request

from leftoff.api.generation import GenerationFields
from leftoff.api.messages import ChatFields
from leftoff.api.service import Order, Service
from leftoff.api.tenant import namespace_of
from leftoff.chat.chat import ChatPrompt
from leftoff.chat.notes import Note
from leftoff.core import Prompt


async def read_chat(service: Service, request: Request, body: ChatFields) -> ChatPrompt:
    return await service.aside(
        lambda: service.chat(
            body.plain_messages(),
            tools=body.offered_tools,
            add_generation_prompt=body.add_generation_prompt is not False,
            options=body.template_options,
            namespace=namespace_of(request, body.cache_salt),
        )
    )


def make_orders(
    service: Service,
    request: Request,
    body: GenerationFields,
    prompts: Sequence[Prompt],
    *,
    num_each: int = 1,
    num_logprobs: int | None = None,
    notes: Sequence[Note] = (),
) -> list[Order]:
    """The replies to one prompt stand together, each with a seed of its own."""
    body.refuse_what_is_not_there()
    sampling = body.sampling(service.model.vocabulary, service.context_tokens)
    seeds = [None if sampling.seed is None else sampling.seed + index for index in range(num_each)]
    return [
        Order(
            prompt,
            replace(sampling, seed=seed),
            max_tokens=body.length_limit,
            stops=body.stops,
            namespace=namespace_of(request, body.cache_salt),
            num_logprobs=num_logprobs,
            ignore_end=bool(body.ignore_eos),
            notes=tuple(map(str, notes)),
        )
        for prompt in prompts
        for seed in seeds
    ]
