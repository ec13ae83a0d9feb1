"""Errors as HTTP responses: the one place that gives an exception a status and a body.

The default body is OpenAI's. A dialect with another one declares it with its routes (`Dialect.error_shapes`).
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from leftoff.chat.template.render import TemplateError
from leftoff.chat.work import GivenUpError
from leftoff.config import MIB
from leftoff.engine.errors import InputError, ModelError, NoRoomError, OutOfMemoryError
from leftoff.errors import LeftoffError
from leftoff.host.adapters import AdapterError
from leftoff.host.host import HostClosedError
from leftoff.picture import PictureError
from leftoff.scheduler.gate import NoSeatError
from leftoff.scheduler.job import QueueFullError

BAD_REQUEST = "invalid_request_error"
CLIENT_GONE = 499  # the status of a request whose client has left: nobody reads it but the log
_RETRY_SECONDS = 2


@dataclass(eq=False)
class ApiError(Exception):
    """An HTTP error. The message names the field or value at fault, and what to do instead."""

    status: int
    message: str
    _: KW_ONLY
    param: str | None = None
    code: str | None = None
    kind: str = BAD_REQUEST
    headers: dict[str, str] | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)


class PromptTooLongError(ApiError):
    """The prompt does not fit the context. The message has both lengths."""

    def __init__(self, num_tokens: int, context_tokens: int, param: str = "prompt", *, is_exact: bool = True) -> None:
        """`num_tokens` is an estimate unless `is_exact`: far too long prompts are not tokenised to the end."""
        self.num_tokens = num_tokens
        self.context_tokens = context_tokens
        self.is_exact = is_exact
        count = f"{'' if is_exact else 'about '}{num_tokens}"
        super().__init__(
            400,
            f"the prompt has {count} tokens; the context holds {context_tokens}, and a reply needs at least one:"
            " shorten it, or start the server with a larger --ctx or, for chats, with --overflow cut",
            param=param,
            code="context_length_exceeded",
        )


class ClientGoneError(Exception):
    """The client closed its connection before the response was complete."""


class Details(msgspec.Struct, omit_defaults=True):
    """OpenAI's error object. `n_prompt_tokens` and `n_ctx` are llama-server's, for prompts that do not fit."""

    message: str
    type: str
    param: str | None
    code: str | None
    n_prompt_tokens: int = 0
    n_ctx: int = 0


class ErrorBody(msgspec.Struct):
    """An error in OpenAI's shape."""

    error: Details


ErrorShape = Callable[[Exception], msgspec.Struct]


def bad_field(param: str, message: str) -> ApiError:
    """A 400 for a field that has the right type and an unacceptable value."""
    return ApiError(400, f"{param}: {message}", param=param)


def missing_field(param: str) -> ApiError:
    """400: a required field is not there."""
    return ApiError(400, f"{param}: this field is required", param=param, code="missing_field")


def no_model(problem: str) -> ApiError:
    """404: there is no model, or no adapter of it, of the name that a request has."""
    return ApiError(404, problem, param="model", code="model_not_found")


def not_yet(param: str, value: object, instead: str) -> ApiError:
    """A 400 for a known feature that this server lacks."""
    return ApiError(400, f"{param} is {value!r}, which is not supported yet: {instead}", param=param, code="not_yet")


def stopping() -> ApiError:
    """503: the server is shutting down."""
    return _unavailable("the server is stopping: try again later", "stopping")


def busy(message: str) -> ApiError:
    """503: the server has too much to do."""
    return _unavailable(f"{message}: try again later", "busy")


def too_much_at_once(limit_bytes: int) -> ApiError:
    """503: the bodies of all requests together are too large."""
    message = f"the requests that are being answered hold more than {limit_bytes / MIB:g} MiB: try again later"
    return _unavailable(message, "too_much_at_once")


def too_slow(unread_bytes: int) -> ApiError:
    """408: a client has not read its stream."""
    problem = f"{unread_bytes} bytes of this stream waited unread, so that its reply was cancelled"
    message = f"{problem}: read it as it comes, or ask for fewer tokens"
    return ApiError(408, message, kind="timeout_error", code="client_too_slow")


def as_api_error(error: Exception) -> ApiError:
    """Give an exception of any layer its status and message. Unforeseen ones become a 500 without details."""
    match error:
        case ApiError():
            return error
        case HTTPException():
            return ApiError(error.status_code, error.detail, headers=dict(error.headers or {}))
        case TemplateError():
            return ApiError(400, str(error), param="messages", code="template_error")
        case HostClosedError() | GivenUpError():  # not because the client left: nobody would ask what it means
            return stopping()
        case QueueFullError() | NoRoomError() | ModelError() | OutOfMemoryError() | NoSeatError():
            return _short_of_room(error)
        case InputError() | PictureError():
            return ApiError(400, str(error))
        case AdapterError():
            is_name = error.field == "model"
            return no_model(error.problem) if is_name else bad_field(error.field, error.problem)
        case LeftoffError():
            return ApiError(500, str(error), kind="server_error", code="engine_error")
    return ApiError(500, "an error inside the server; its log says more", kind="server_error", code="internal_error")


def _short_of_room(error: LeftoffError) -> ApiError:
    """503: in the queue, in the context, or for the model itself."""
    match error:
        case QueueFullError():
            return _unavailable(str(error), "queue_full")
        case NoRoomError():
            return _unavailable(f"{error}: other replies fill the context, try again later", "context_full")
    return _unavailable(str(error), "model_unavailable")  # of a load: another server may have it, or a later one


def shape_at(path: str, shapes: Mapping[str, ErrorShape]) -> ErrorShape:
    """The error shape of a path: `shapes` has those of the dialects by path prefix; OpenAI's is the default."""
    return next((shape for prefix, shape in shapes.items() if path.startswith(prefix)), error_body)


def error_body(error: Exception) -> ErrorBody:
    """An error in OpenAI's shape."""
    known = as_api_error(error)
    details = Details(known.message, known.kind, known.param, known.code)
    if isinstance(known, PromptTooLongError):
        details.n_prompt_tokens, details.n_ctx = known.num_tokens, known.context_tokens
    return ErrorBody(details)


def error_response(error: Exception, scope: Scope) -> Response:
    """Log the refusal, and answer in the shape of the dialect that the request's path belongs to."""
    known = as_api_error(error)
    scope["app"].state.log_refusal(scope, known, error)
    content = msgspec.json.encode(shape_at(scope["path"], scope["app"].state.error_shapes)(known))
    return Response(content, known.status, headers=known.headers, media_type="application/json")


async def on_error(request: Request, error: Exception) -> Response:
    """The exception handler of all routes, and of paths that have none."""
    if isinstance(error, ClientGoneError):
        gone = ApiError(CLIENT_GONE, "its client left before the prompt was made")
        request.app.state.log_refusal(request.scope, gone, error)
        return Response(status_code=CLIENT_GONE)
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        error = _no_route(request, error)
    return error_response(error, request.scope)


# Features of other servers, by the last part of their paths, and what to do instead.
_UNSUPPORTED = {
    **dict.fromkeys(
        ("pull", "push", "create", "copy", "delete"),
        "models are not managed here: name one at the start, with leftoff serve --model",
    ),
    "infill": "filling in is not supported: write the tokens that the model has for it into the prompt of /completion",
    "compact": "compaction is not supported: ask for a summary, and send that instead of the conversation",
}


def _no_route(request: Request, error: HTTPException) -> ApiError:
    """404 or 405; a feature that clients may expect is named in words."""
    path = request.url.path
    lacking = _UNSUPPORTED.get(path.rpartition("/")[2])
    if lacking:
        return ApiError(404, f"{request.method} {path}: {lacking}", code="not_supported")
    message = f"there is no {request.method} {path}: see GET /openapi.json for what there is"
    code = "method_not_allowed" if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED else "not_found"
    return ApiError(error.status_code, message, code=code, headers=dict(error.headers or {}))


def _unavailable(message: str, code: str) -> ApiError:
    headers = {"Retry-After": str(_RETRY_SECONDS)}
    return ApiError(503, message, kind="unavailable_error", code=code, headers=headers)
