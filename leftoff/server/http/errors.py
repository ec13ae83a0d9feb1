"""Everything that can go wrong on the wire, turned into HTTP here and nowhere else, in the shape of each dialect."""

import logging
from collections.abc import Callable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from leftoff.chat.template.render import TemplateError
from leftoff.chat.work import GivenUpError
from leftoff.config import MIB
from leftoff.engine.errors import EngineError, InputError, NoRoomError
from leftoff.scheduler.scheduler import QueueFullError

logger = logging.getLogger(__name__)

BAD_REQUEST = "invalid_request_error"
_RETRY_SECONDS = 2
_ANTHROPIC_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


class ApiError(Exception):
    """A refusal that names the field and the way out."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str = BAD_REQUEST,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.kind = kind
        self.headers = headers


class PromptTooLongError(ApiError):
    """Never cut in silence: the caller learns both numbers."""

    def __init__(self, num_tokens: int, context_tokens: int, param: str = "prompt", *, is_exact: bool = True) -> None:
        """Unless it `is_exact`, the prompt has at least so many tokens: it was not worth counting them all."""
        self.num_tokens = num_tokens
        self.context_tokens = context_tokens
        self.is_exact = is_exact
        count = f"{'' if is_exact else 'at least '}{num_tokens}"
        super().__init__(
            400,
            f"the prompt has {count} tokens; the context holds {context_tokens}, and a reply needs at least one:"
            " shorten it, or start the server with a larger --ctx or, for chats, with --overflow cut",
            param=param,
            code="context_length_exceeded",
        )


class ClientGoneError(Exception):
    """Nobody is there to read an answer."""


class Details(msgspec.Struct, omit_defaults=True):
    """OpenAI's error object. The last two are llama-server's, for prompts that do not fit."""

    message: str
    type: str
    param: str | None
    code: str | None
    n_prompt_tokens: int = 0
    n_ctx: int = 0


class ErrorBody(msgspec.Struct):
    error: Details


class AnthropicDetails(msgspec.Struct):
    type: str
    message: str


class AnthropicErrorBody(msgspec.Struct, tag_field="type", tag="error"):
    error: AnthropicDetails


class OllamaErrorBody(msgspec.Struct):
    error: str


ErrorShape = Callable[[Exception], msgspec.Struct]


def bad_field(param: str, message: str) -> ApiError:
    """A field whose value is of the right type and still not acceptable."""
    return ApiError(400, f"{param}: {message}", param=param)


def not_yet(param: str, value: object, instead: str) -> ApiError:
    return ApiError(400, f"{param} is {value!r}, which is not supported yet: {instead}", param=param, code="not_yet")


def stopping() -> ApiError:
    return _unavailable("the server is stopping: try again later", "stopping")


def busy(message: str) -> ApiError:
    return _unavailable(f"{message}: try again later", "busy")


def too_much_at_once(limit_bytes: int) -> ApiError:
    message = f"the requests that are being answered hold more than {limit_bytes / MIB:g} MiB: try again later"
    return _unavailable(message, "too_much_at_once")


def too_slow(unread_bytes: int) -> ApiError:
    problem = f"{unread_bytes} bytes of this stream waited unread, so that its reply was cancelled"
    message = f"{problem}: read it as it comes, or ask for fewer tokens"
    return ApiError(408, message, kind="timeout_error", code="client_too_slow")


def as_api_error(error: Exception) -> ApiError:
    """Says what an error of the layers below means to a client."""
    match error:
        case ApiError():
            return error
        case HTTPException():
            return ApiError(error.status_code, error.detail, headers=dict(error.headers or {}))
        case TemplateError():
            return ApiError(400, str(error), param="messages", code="template_error")
        case GivenUpError():  # not because the client left: nobody would ask what it means
            return stopping()
        case QueueFullError():
            return _unavailable(str(error), "queue_full")
        case NoRoomError():
            return _unavailable(f"{error}: other replies fill the context, try again later", "context_full")
        case InputError():
            return ApiError(400, str(error))
        case EngineError():
            return ApiError(500, str(error), kind="server_error", code="engine_error")
    return ApiError(500, "an error inside the server; its log says more", kind="server_error", code="internal_error")


def error_shape(path: str) -> ErrorShape:
    """A request's path tells its dialect, also where no route does."""
    if path.startswith("/v1/messages"):
        return anthropic_error
    return ollama_error if path.startswith("/api/") else error_body


def error_body(error: Exception) -> ErrorBody:
    known = as_api_error(error)
    details = Details(known.message, known.kind, known.param, known.code)
    if isinstance(known, PromptTooLongError):
        details.n_prompt_tokens, details.n_ctx = known.num_tokens, known.context_tokens
    return ErrorBody(details)


def anthropic_error(error: Exception) -> AnthropicErrorBody:
    known = as_api_error(error)
    message = known.message
    if isinstance(known, PromptTooLongError):  # by these words agents know that it is time to shorten the conversation
        message = f"prompt is too long: {known.num_tokens} tokens > {known.context_tokens} maximum. {message}"
    return AnthropicErrorBody(AnthropicDetails(_ANTHROPIC_KINDS.get(known.status, BAD_REQUEST), message))


def ollama_error(error: Exception) -> OllamaErrorBody:
    return OllamaErrorBody(as_api_error(error).message)


def error_response(error: Exception, path: str) -> Response:
    known = as_api_error(error)
    if known.status >= 500:
        logger.error("%s", error, exc_info=error if known.code == "internal_error" else None)
    content = msgspec.json.encode(error_shape(path)(known))
    return Response(content, known.status, headers=known.headers, media_type="application/json")


async def on_error(request: Request, error: Exception) -> Response:
    """For starlette: the one place where an exception becomes a response."""
    if isinstance(error, ClientGoneError):
        return Response(status_code=499)
    path = request.url.path
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        message = f"there is no {request.method} {path}: see GET /openapi.json for what there is"
        error = ApiError(error.status_code, message, code="not_found", headers=dict(error.headers or {}))
    return error_response(error, path)


def _unavailable(message: str, code: str) -> ApiError:
    headers = {"Retry-After": str(_RETRY_SECONDS)}
    return ApiError(503, message, kind="unavailable_error", code=code, headers=headers)
