"""Work on texts and templates is done on a thread of its own, so that the streams of others go on."""

from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request

from leftoff.chat.meter import TooManyTokensError
from leftoff.chat.overflow import ContextOverflowError
from leftoff.host.encoder import EncoderHost
from leftoff.host.host import ModelHost
from leftoff.server.http.endpoint import attended
from leftoff.server.http.errors import PromptTooLongError

Result = TypeVar("Result")


async def aside(
    host: ModelHost | EncoderHost, function: Callable[[], Result], request: Request | None = None
) -> Result:
    """Runs a function on a thread of the host. What does not fit its context is refused.

    A long request waits behind other long ones only, and is given up when its client leaves.
    """
    host.require_alive()
    num_bytes = request.state.num_bytes if request is not None else 0
    work = host.lanes.run(function, num_bytes)
    try:
        if request is not None and host.lanes.is_long(num_bytes):
            return await attended(request.receive, work)
        return await work
    except TooManyTokensError as error:
        raise PromptTooLongError(error.num_tokens, host.context_tokens, is_exact=False) from error
    except ContextOverflowError as error:
        raise PromptTooLongError(
            error.prompt_tokens, error.context_tokens, "messages", is_exact=error.is_exact
        ) from error
