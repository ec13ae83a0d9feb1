"""From a parsed body of any dialect to jobs. Whatever works on texts is done on a thread for that (`aside`)."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from starlette.requests import Request

from leftoff.chat.conversation import Conversation
from leftoff.chat.formats.parser import Output
from leftoff.host.host import ModelHost
from leftoff.sampling import MAX_BIAS, Sampling
from leftoff.server.http.errors import PromptTooLongError, bad_field
from leftoff.server.request.aside import aside
from leftoff.server.request.attachments import attached_to
from leftoff.server.request.caller import caller_of
from leftoff.server.request.constraints import Guides
from leftoff.server.request.content import Attached, notes_on_left_out
from leftoff.server.request.fields import ChatRequest, GenerationFields
from leftoff.server.request.job import ReplyJob
from leftoff.server.tenant import namespace_of
from leftoff.types import Prompt

_MAX_REPLIES = 1024  # to one request


async def count_tokens(host: ModelHost, request: Request, body: ChatRequest) -> int:
    """The length of a chat's prompt, also if it is too long to be read."""
    namespace = namespace_of(request, body.cache_salt)
    attached = await attached_to(host, request, body)
    try:
        chat = await aside(host, lambda: host.chats.prompt(conversation_of(host, body, namespace, attached)), request)
        return chat.prompt.length
    except PromptTooLongError as error:
        if not error.is_exact:
            raise
        return error.num_tokens


async def chat_jobs(host: ModelHost, request: Request, body: ChatRequest) -> list[ReplyJob]:
    """The replies to a chat."""
    namespace, num_replies = namespace_of(request, body.cache_salt), body.n or 1
    adapters = host.adapters.asked(body.model, body.scales)
    if not adapters.invocation:  # with an aLoRA the conversation is that of the model without it
        namespace = adapters.namespace(namespace)
    attached = await attached_to(host, request, body)

    def read() -> ReplyJob:
        conversation = conversation_of(host, body, namespace, attached)
        chat = host.chats.prompt(conversation)
        host.learn_header(chat)
        return ReplyJob(
            chat.prompt,
            _sampling_of(host, body),
            namespace=namespace,
            wants_logits=bool(body.logprobs or body.top_logprobs),
            num_top_logprobs=body.top_logprobs or 0,
            output=body.output(host.prompts.format),
            notes=tuple(map(str, (*body.notes, *notes_on_left_out(conversation.messages), *chat.notes))),
            caller=caller_of(request, conversation.messages),
            asked_at=getattr(request.state, "asked_at", None),
            # of several replies none is the one that the client goes on with, and half a reply is not remembered
            chat=chat if num_replies == 1 and not conversation.prefill else None,
        )

    job = await aside(host, read, request)
    return await _jobs(host, request, body, job, [job.prompt], num_replies)


async def raw_jobs(
    host: ModelHost,
    request: Request,
    body: GenerationFields,
    read: Callable[[], Sequence[Prompt]],
    *,
    num_each: int = 1,
    num_logprobs: int | None = None,
    output: Output | None = None,
) -> list[ReplyJob]:
    """The replies to prompts that are no chats, `num_each` to each of them. `read` makes the prompts."""
    prompts, sampling = await aside(host, lambda: (read(), _sampling_of(host, body)), request)
    job = ReplyJob(
        prompts[0],
        sampling,
        namespace=namespace_of(request, body.cache_salt),
        wants_logits=num_logprobs is not None,
        num_top_logprobs=num_logprobs or 0,
        output=output,
        caller=caller_of(request),
        asked_at=getattr(request.state, "asked_at", None),
    )
    return await _jobs(host, request, body, job, prompts, num_each)


def conversation_of(
    host: ModelHost, body: ChatRequest, namespace: str = "", attached: Attached | None = None
) -> Conversation:
    """The conversation of a body. A model that can be kept from calling sees all tools, so that prompts begin alike."""
    return body.conversation(namespace, shows_all_tools=host.prompts.call_token is not None, attached=attached)


async def _jobs(
    host: ModelHost, request: Request, body: GenerationFields, job: ReplyJob, prompts: Sequence[Prompt], num_each: int
) -> list[ReplyJob]:
    """One job for each reply: those to one prompt stand together, each with a seed of its own."""
    if len(prompts) * num_each > _MAX_REPLIES:
        problem = f"{len(prompts)} prompts with {num_each} replies each are too many: at most {_MAX_REPLIES} are made"
        raise bad_field("n", problem)
    adapters = host.adapters.asked(body.model, body.scales)
    prompts = [prompt.adapted(adapters) for prompt in prompts]
    guides = await Guides(host, body, job.output).make(prompts, num_each, request.state.num_bytes)
    whole = replace(job, max_tokens=body.length_limit, stops=body.stops, ignore_end=bool(body.ignore_eos))
    samplings = [_seeded(job.sampling, index) for index in range(num_each)]
    replies = [(prompt, sampling) for prompt in prompts for sampling in samplings]
    return [
        replace(whole, prompt=prompt, sampling=sampling, constraint=guide)
        for (prompt, sampling), guide in zip(replies, guides, strict=True)
    ]


def _sampling_of(host: ModelHost, body: GenerationFields) -> Sampling:
    sampling = body.sampling(host.model.vocabulary, host.context_tokens, host.default_sampling)
    if isinstance(body, ChatRequest) and not body.may_call and (token := host.prompts.call_token) is not None:
        return replace(sampling, logit_bias=(*sampling.logit_bias, (token, -MAX_BIAS)))
    return sampling


def _seeded(sampling: Sampling, index: int) -> Sampling:
    return sampling if sampling.seed is None or index == 0 else replace(sampling, seed=sampling.seed + index)
