"""From a parsed body of any dialect to jobs."""

from collections.abc import Sequence
from dataclasses import replace

from starlette.requests import Request

from leftoff.chat.chat import ChatPrompt
from leftoff.chat.conversation import Conversation, Note
from leftoff.chat.formats.parser import Output
from leftoff.sampling import MOST_BIAS
from leftoff.server.aside import aside
from leftoff.server.http.errors import bad_field
from leftoff.server.request.chat import ChatRequest
from leftoff.server.request.constraints import make_guides
from leftoff.server.request.fields import GenerationFields
from leftoff.server.request.job import ReplyJob
from leftoff.server.request.messages import ChatFields
from leftoff.server.service import Service
from leftoff.server.tenant import namespace_of
from leftoff.types import Prompt

_MOST_REPLIES = 1024  # to one request


def conversation_of(service: Service, request: Request, body: ChatFields) -> Conversation:
    """Tools that must not be called are shown all the same, if the model can be kept from calling: then the prompt
    begins like those before it.
    """
    can_forbid = service.prompts.call_token is not None
    return body.conversation(namespace_of(request, body.cache_salt), shows_all_tools=can_forbid)


async def read_chat(service: Service, request: Request, body: ChatFields) -> ChatPrompt:
    return await aside(service, request, lambda: service.chat(conversation_of(service, request, body)))


async def chat_jobs(
    service: Service, request: Request, body: ChatRequest, notes: Sequence[Note] = ()
) -> list[ReplyJob]:
    """`notes` is what was done to the request on its way here, for the journal."""
    chat = await read_chat(service, request, body)
    wants_logprobs = body.logprobs or body.top_logprobs
    return await make_jobs(
        service,
        request,
        body,
        [chat.prompt],
        num_each=body.n or 1,
        num_logprobs=(body.top_logprobs or 0) if wants_logprobs else None,
        notes=(*notes, *chat.notes),
        output=body.output(service.prompts.format),
        chat=None if chat.conversation.prefill else chat,  # half a reply is not remembered
    )


async def make_jobs(
    service: Service,
    request: Request,
    body: GenerationFields,
    prompts: Sequence[Prompt],
    *,
    num_each: int = 1,
    num_logprobs: int | None = None,
    notes: Sequence[Note] = (),
    output: Output | None = None,
    chat: ChatPrompt | None = None,
) -> list[ReplyJob]:
    """The replies to one prompt stand together, each with a seed of its own."""
    if len(prompts) * num_each > _MOST_REPLIES:
        problem = f"{len(prompts)} prompts with {num_each} replies each are too many: at most {_MOST_REPLIES} are made"
        raise bad_field("n", problem)
    sampling = body.sampling(service.model.vocabulary, service.context_tokens, service.default_sampling)
    if isinstance(body, ChatFields) and not body.may_call and (token := service.prompts.call_token) is not None:
        sampling = replace(sampling, logit_bias=(*sampling.logit_bias, (token, -MOST_BIAS)))
    seeds = [None if sampling.seed is None else sampling.seed + index for index in range(num_each)]
    guides = await make_guides(service, body, output, prompts, num_each, len(await request.body()))
    replies = [(prompt, seed) for prompt in prompts for seed in seeds]
    return [
        ReplyJob(
            prompt,
            replace(sampling, seed=seed),
            max_tokens=body.length_limit,
            stops=body.stops,
            namespace=namespace_of(request, body.cache_salt),
            wants_logits=num_logprobs is not None,
            num_top_logprobs=num_logprobs or 0,
            ignore_end=bool(body.ignore_eos),
            notes=tuple(map(str, notes)),
            output=output,
            constraint=guide,
            chat=chat if num_each == 1 else None,
        )
        for (prompt, seed), guide in zip(replies, guides, strict=True)
    ]
