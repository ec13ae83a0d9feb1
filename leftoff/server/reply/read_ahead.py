"""What is done when a reply has ended: it is remembered as it was written, and what comes next is read ahead."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from leftoff.cache.report import ReuseReport
from leftoff.chat.chat import Chat
from leftoff.chat.overflow import ContextOverflowError
from leftoff.chat.remembered import RememberedReplies, Written
from leftoff.chat.template.render import MessageDict, TemplateError
from leftoff.chat.work import GivenUpError
from leftoff.engine.errors import EngineError
from leftoff.scheduler.request import Finish, Request, Timings
from leftoff.types import Logits, owner_of

if TYPE_CHECKING:
    from leftoff.server.reply.stream import ReplyStream
    from leftoff.server.request.job import Conversation
    from leftoff.server.service import Service

logger = logging.getLogger("leftoff.requests")

_TOKEN_BYTES = 4  # of most texts


class Afterwards:
    """`remembered` and reading ahead may each be turned off."""

    def __init__(
        self, service: "Service", chat: Chat, remembered: RememberedReplies | None, *, reads_ahead: bool
    ) -> None:
        self._service = service
        self._chat = chat
        self._remembered = remembered
        self._reads_ahead = reads_ahead

    def replied(self, stream: "ReplyStream", written: Written, *, is_whole: bool) -> None:
        """On the engine's thread: the work is done elsewhere."""
        conversation = stream.order.conversation
        assert conversation is not None
        if self._remembered is not None and is_whole:
            self._remembered.add(conversation.key, written, stream.order.namespace)
        if self._reads_ahead:
            reply = _as_sent_back(stream, written)
            self._service.lanes.later(
                lambda: self._read_ahead(conversation, reply, stream.order.namespace),
                _TOKEN_BYTES * stream.order.prompt.length,
            )

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """The replies of some namespaces."""
        if self._remembered is not None:
            self._remembered.clear(is_meant)

    def _read_ahead(self, conversation: "Conversation", reply: MessageDict, namespace: str) -> None:
        try:
            prompt = self._chat.ahead(
                conversation.messages,
                reply,
                tools=conversation.tools,
                options=conversation.options,
                namespace=namespace,
            )
        except (ContextOverflowError, TemplateError, GivenUpError):
            return  # the client will hear of it, if it goes on like this
        if prompt.length < self._service.context_tokens:
            self._service.scheduler.read_ahead(
                Request(prompt, _Reader(self._service, namespace), max_tokens=0, namespace=namespace)
            )


class _Reader:
    """A sink for what nobody waits for."""

    def __init__(self, service: "Service", namespace: str) -> None:
        self._service = service
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
        self._service.counts[self._tenant].read_ahead_tokens += num_tokens
        logger.info("read ahead %d tokens of %d while idle", num_tokens, self._report.prompt_tokens)


def _as_sent_back(stream: "ReplyStream", written: Written) -> MessageDict:
    """What most clients make of a reply: its reasoning is left out."""
    said = written.said
    reply: dict[str, object] = {"role": "assistant", "content": said.content}
    if said.calls:
        functions = [{"name": call.name, "arguments": call.arguments} for call in said.calls]
        reply["tool_calls"] = [
            {"id": stream.call_id(index), "type": "function", "function": function}
            for index, function in enumerate(functions)
        ]
    return reply
