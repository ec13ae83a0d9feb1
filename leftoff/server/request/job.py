"""A job with the fields that only the server needs."""

from dataclasses import dataclass

from leftoff.chat.chat import ChatPrompt
from leftoff.chat.formats.parser import Output
from leftoff.host.callers import NOBODY, Caller
from leftoff.scheduler.job import Job


@dataclass(frozen=True, eq=False)
class ReplyJob(Job):
    """A job for the scheduler, and how its tokens become the reply on the wire."""

    stops: tuple[str, ...] = ()
    num_top_logprobs: int = 0  # beside that of the chosen token, if the job wants logits
    output: Output | None = None  # None: the text is sent as it is
    notes: tuple[str, ...] = ()
    caller: Caller = NOBODY
    asked_at: float | None = None  # by `perf_counter`, if it had to wait until its model was open
    chat: ChatPrompt | None = None  # if the reply is to be remembered, and the next prompt read ahead
