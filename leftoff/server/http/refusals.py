"""The line that a request leaves if it ended before it became a job."""

import logging

from starlette.types import Scope

from leftoff.host.request_log import REFUSED, RequestLog
from leftoff.scheduler.job import Finish
from leftoff.server.http.errors import CLIENT_GONE, ApiError
from leftoff.server.http.line_rate import LineRate
from leftoff.server.tenant import Tenant

logger = logging.getLogger("leftoff.requests")

_LOGGED_CHARACTERS = 240  # of what a client has sent


class RefusalLog:
    """Logs one line for each refused request; of a flood only some. On the event loop.

    The log has it too if its tenant is known, unless it was for a route that is not there: some agents try such. Jobs
    leave lines of their own.
    """

    def __init__(self, log: RequestLog) -> None:
        self._log = log
        self._rate = LineRate()

    def __call__(self, scope: Scope, refusal: ApiError, error: Exception) -> None:
        state = scope.get("state", {})
        is_unforeseen = refusal.code == "internal_error"
        if state.get("has_jobs") and not is_unforeseen:
            return
        tenant: Tenant | None = state.get("tenant")
        if tenant is not None:
            self._log.refused[tenant.name][str(refusal.status)] += 1
        num_left_out = self._rate.take(tenant.name if tenant is not None else None)
        if num_left_out is None:
            return
        is_gone = refusal.status == CLIENT_GONE
        reason = refusal.message[:_LOGGED_CHARACTERS]
        verb = "cancelled" if is_gone else f"refused with {refusal.status}"
        line = f"{scope['method']} {scope['path'][:_LOGGED_CHARACTERS]} {verb}: {reason}"
        if tenant is not None and refusal.code not in ("not_found", "method_not_allowed", "not_supported"):
            finish = Finish.CANCELLED.value if is_gone else REFUSED
            self._log.add_refused(line, refusal.status, reason, tenant.namespace(None), finish)
        more = f" (and {num_left_out:,} more refused since the last such line)" if num_left_out else ""
        level = logging.ERROR if refusal.status >= 500 else logging.INFO
        logger.log(level, "%s%s", line, more, exc_info=error if is_unforeseen else None)
