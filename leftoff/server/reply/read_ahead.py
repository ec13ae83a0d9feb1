"""After a reply: remember it as the model wrote it, and read the next prompt's beginning while the server is idle."""

import logging
from collections.abc import Sequence

from leftoff.adapters import NO_ADAPTERS, AdapterSet
from leftoff.cache.report import ReuseReport
from leftoff.chat.conversation import Conversation
from leftoff.chat.overflow import ContextOverflowError
from leftoff.chat.replies import Written
from leftoff.chat.template.render import MessageDict, TemplateError
from leftoff.chat.work import GivenUpError
from leftoff.engine.errors import EngineError
from leftoff.host.host import ModelHost
from leftoff.scheduler.job import Finish, Job, Timings
from leftoff.scheduler.run import Run
from leftoff.server.request.job import ReplyJob
from leftoff.types import Logits, owner_of

logger = logging.getLogger("leftoff.requests")

_TOKEN_BYTES = 4  # of text, on average: the length of a prompt says which thread makes the next one


def after_reply(
    host: ModelHost, job: ReplyJob, written: Written, call_ids: Sequence[str], finish: Finish, num_forgets: int
) -> None:
    """Remembers a reply, and has its next prompt read ahead. Each can be turned off.

    Called on the event loop: reading ahead is prepared on a thread for texts. `num_forgets` is that of the host when
    the reply began: if something was deleted since, it may be this conversation.
    """
    chat = job.chat
    assert chat is not None
    if host.num_forgets != num_forgets:
        return
    if host.remembered is not None:
        host.remembered.add(chat.key, written, job.namespace)
    if host.settings.read_ahead and finish in (Finish.END, Finish.STOPPED):
        reply = _as_sent_back(written, call_ids)
        length = _TOKEN_BYTES * job.prompt.length
        # the text that invokes an aLoRA is not known yet: the model without it reads up to there
        adapters = NO_ADAPTERS if job.prompt.adapted_from else job.prompt.adapters
        host.lanes.later(lambda: _read_ahead(host, chat.conversation, reply, adapters, num_forgets), length)


def _read_ahead(
    host: ModelHost, conversation: Conversation, reply: MessageDict, adapters: AdapterSet, num_forgets: int
) -> None:
    if host.num_forgets != num_forgets:
        return  # the conversation may have been deleted
    try:
        prompt = host.chats.ahead(conversation, reply)
    except (ContextOverflowError, TemplateError, GivenUpError):
        return  # the client will hear of it, if it goes on like this
    if prompt.length < host.context_tokens and host.num_forgets == num_forgets:
        namespace = conversation.namespace
        job = Job(prompt.adapted(adapters), max_tokens=0, namespace=namespace)
        host.scheduler.read_ahead(Run(job, _Reader(host, namespace)))


class _Reader:
    """The sink of a prompt that is read ahead: counts its tokens, and generates none."""

    def __init__(self, host: ModelHost, namespace: str) -> None:
        self._host = host
        self._tenant = owner_of(namespace)
        self._report: ReuseReport | None = None
        self._num_read = 0

    def started(self, report: ReuseReport) -> None:
        self._report = report
        self._num_read = report.reused

    def progress(self, num_read: int) -> None:
        self._num_read = num_read

    def token(self, token: int, logits: Logits | None) -> bool:  # noqa: ARG002
        return False

    def finished(self, finish: Finish, timings: Timings, error: EngineError | Exception | None) -> None:  # noqa: ARG002
        if self._report is None:
            return  # it was known already
        num_tokens = self._num_read - self._report.reused
        self._host.log.counts[self._tenant, self._host.name].read_ahead_tokens += num_tokens
        if num_tokens:  # else a request came first
            logger.info("read ahead %s tokens of %s while idle", f"{num_tokens:,}", f"{self._report.prompt_tokens:,}")


def _as_sent_back(written: Written, call_ids: Sequence[str]) -> MessageDict:
    """The reply as most clients send it back: without its reasoning."""
    said = written.said
    reply: dict[str, object] = {"role": "assistant", "content": said.content}
    if said.calls:
        reply["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call_id, call in zip(call_ids, said.calls, strict=True)
        ]
    return reply
