"""`DELETE /cache`: removes namespaces from RAM, disk and store, of one model or of all, and data that models share."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial

from leftoff.errors import reason_of
from leftoff.host.host import ModelHost
from leftoff.host.late_host import LateHost
from leftoff.server.hosts import Hosts
from leftoff.server.http.errors import ApiError
from leftoff.server.request.aside import aside
from leftoff.server.request.raw_prompts import RawPrompts

_PATIENCE_S = 60.0  # with disks and stores


class Deletion:
    """Deletes the namespaces that are meant. What fails keeps nothing else from being deleted."""

    def __init__(self, hosts: Hosts, is_meant: Callable[[str], bool]) -> None:
        self._hosts = hosts
        self._is_meant = is_meant
        self._freed = Counter({"freed_bytes": 0, "entries": 0, "running": 0})
        self._elsewhere: list[Future[None]] = []  # deletions that go on in other threads
        self._problems: list[Exception] = []

    async def of_models(self, model: str | None) -> None:
        """Deletes from the model of that name, or from all models, whether or not they are open."""
        named = [self._hosts.named(model)] if model else self._hosts.listed()
        hosts = [] if model and named[0].opened is None else self._hosts.opened(model)
        for host in hosts:
            await self._attempt(self._of_host(host))
        await self._attempt(self._elsewhere_done())  # else the same blobs are counted again
        self._hosts.log.forget(self._is_meant, named[0].name if model else None)
        for late in named:
            await self._attempt(self._beside_host(late))
            if (opened := late.opened) is not None and opened not in hosts:  # meanwhile
                await self._attempt(self._of_host(opened))

    async def of_no_model(self) -> None:
        """Deletes kept headers, which models share, and the vectors of encoders."""
        for encoder in self._hosts.encoders:
            encoder.embeddings.forget(self._is_meant)
        first = self._hosts.first
        await self._attempt(aside(first, lambda: first.forget_headers(self._is_meant)))

    async def end(self) -> dict[str, int]:
        """Waits for deletions in other threads; returns the numbers. Raises a 503 if one has failed."""
        await self._attempt(self._elsewhere_done())
        if self._problems:
            raise _not_deleted(self._problems[0]) from self._problems[0]
        return self._freed

    async def _attempt(self, deletion: Awaitable[None]) -> None:
        try:
            await deletion
        except Exception as error:  # a medium may fail in any way
            self._problems.append(error)

    async def _of_host(self, host: ModelHost) -> None:
        freed, elsewhere = await host.between_steps(partial(_clear, host, self._is_meant))
        RawPrompts.of(host).id_lists.forget(self._is_meant)
        self._freed.update(freed)
        self._elsewhere += elsewhere

    async def _beside_host(self, late: LateHost) -> None:
        for pruned in await asyncio.to_thread(late.forget, self._is_meant):
            self._freed.update(freed_bytes=pruned.nbytes, entries=pruned.num_blobs)

    async def _elsewhere_done(self) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            await asyncio.gather(*map(asyncio.wrap_future, self._elsewhere))


def _clear(host: ModelHost, is_meant: Callable[[str], bool]) -> tuple[dict[str, int], list[Future[None]]]:
    """Deletes on the engine's thread. Returns the numbers, and the deletions that go on elsewhere."""
    budgets = [tier.budget for tier in host.cache.tiers]
    used_bytes = sum(budget.used_bytes for budget in budgets)
    num_points = sum(budget.num_points for budget in budgets)
    deleted, scheduler = host.forget(is_meant), host.scheduler
    return {
        "freed_bytes": used_bytes - sum(budget.used_bytes for budget in budgets),
        "entries": num_points - sum(budget.num_points for budget in budgets),
        "running": sum(is_meant(run.job.namespace) for run in (*scheduler.runs, *scheduler.waiting)),
    }, deleted


def _not_deleted(error: Exception) -> ApiError:
    reason = reason_of(error).partition("\n")[0]
    return ApiError(
        503,
        f"not all of it is deleted ({reason}): this server uses it no more, but it may still be on a disk or in the "
        "store: delete again",
        kind="server_error",
        code="not_deleted",
    )
