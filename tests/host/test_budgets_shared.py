"""Two models under one budget: who is asked gets the room, of RAM and of disk, and together they never have more."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import numpy as np
import pytest

from leftoff.config import MIB
from leftoff.disk.tools.models import models
from leftoff.engine.memory.staging import Staging
from leftoff.host.budgets import Capacities
from leftoff.host.build import fitted, open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.patience import PATIENCE_S, until
from tests.server.fixtures import settings

SAID = "The road goes up the hill and down to the harbour, where the boats lie. " * 8
NAMES = ("llama", "qwen35")
NUM_CHATS = 4
HOUR = 3600.0


class Model:
    """A host with a server, and what its conversations have come to."""

    def __init__(self, host: ModelHost, url: str) -> None:
        self.host, self._url = host, url
        self.said = [f"{number} {SAID}" for number in range(NUM_CHATS)]

    def ask(self, number: int) -> int:
        """A turn of a conversation. Returns how many tokens of its prompt were computed."""
        body = {"prompt": self.said[number], "n_predict": 4, "temperature": 0}
        answer: dict[str, Any] = httpx.post(f"{self._url}/completion", json=body, timeout=PATIENCE_S).json()
        self.said[number] += answer["content"] + " And then?"
        return int(answer["timings"]["prompt_n"])

    def ask_all(self) -> list[int]:
        computed = [self.ask(number) for number in range(NUM_CHATS)]
        self.host.call(self.host.cache.save_idle).result()
        return computed

    @property
    def ram_bytes(self) -> int:
        return self.host.cache.ram.budget.used_bytes

    def rest(self, seconds: float) -> None:
        """As if nobody had asked it for so long."""
        budget = self.host.cache.ram.budget

        def age() -> None:
            for tree in self.host.cache.ram.trees.values():
                for point in [point for node in tree.nodes() for point in node.points]:
                    budget.set_age(point, seconds)

        self.host.call(age).result()


@contextmanager
def opened(shared: Capacities, *names: str, **changes: object) -> Iterator[list[Model]]:
    with ExitStack() as stack:
        found = []
        for name in names:
            fit = replace(fitted(settings(name, sleep_idle_seconds=1000, slots=1, **changes)), shared=shared)
            host = stack.enter_context(open_host(fit))
            found.append(Model(host, stack.enter_context(serving(host))))
        yield found


@pytest.fixture(scope="module")
def enough() -> dict[str, int]:
    """Bytes for the conversations of each model."""
    with opened(Capacities(1 << 30), *NAMES) as both:
        for model in both:
            model.ask_all()
            model.ask_all()
        return {name: model.ram_bytes for name, model in zip(NAMES, both, strict=True)}


@pytest.mark.parametrize("is_asleep", [False, True])
@pytest.mark.parametrize("names", [NAMES, NAMES[::-1]])
def test_the_model_that_is_asked_gets_the_room_of_one_that_rests(
    enough: dict[str, int], names: tuple[str, str], is_asleep: bool
) -> None:
    needed = enough[names[1]]
    shared = Capacities(needed + needed // 8)
    with opened(shared, *names) as (resting, asked):
        resting.ask_all()
        resting.ask_all()
        had = resting.ram_bytes
        resting.rest(HOUR)
        if is_asleep:
            resting.host.rest().result()
            assert resting.host.engine.is_asleep
        assert had > shared.ram.nbytes // 4
        asked.ask_all()
        assert all(computed < 12 for computed in asked.ask_all()), "each was kept while the others were asked"
        assert asked.ram_bytes > 0.6 * needed, "the engine has the last one"
        assert resting.ram_bytes < had // 2
        assert shared.ram.most_bytes <= shared.ram.nbytes
        for model in (resting, asked):
            model.host.call(model.host.cache.check_integrity).result()
        assert sum(resting.ask_all()) > 0, "it goes on all the same"


def test_of_two_models_at_rest_the_conversation_stays_that_is_worth_more(enough: dict[str, int]) -> None:
    shared = Capacities(2 * sum(enough.values()))
    with opened(shared, *NAMES) as (one, other):
        for model in (one, other):
            model.ask_all()
            model.host.rest().result()  # else pages that its engine has as well go first
            model.rest(HOUR)
        one.host.cache.costs.prefill_tokens_per_ms = other.host.cache.costs.prefill_tokens_per_ms / 1e4
        kept, given = one.ram_bytes, other.ram_bytes

        def make_room() -> None:
            shared.ram.nbytes = kept + given
            assert one.host.cache.ram.budget.make_room(given // 2)

        one.host.call(make_room).result()
        assert (one.ram_bytes, other.ram_bytes < given) == (kept, True)


def test_clients_of_both_at_once_never_take_more_than_there_is(enough: dict[str, int]) -> None:
    shared = Capacities(max(enough.values()))
    with opened(shared, *NAMES) as both:
        clients = [Thread(target=model.ask, args=(number,)) for model in both for number in range(NUM_CHATS)] + [
            Thread(target=model.ask_all) for model in both
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join(PATIENCE_S)
        assert not any(client.is_alive() for client in clients)
        for model in both:
            model.host.call(model.host.cache.check_integrity).result()
        assert 0 < shared.ram.most_bytes <= shared.ram.nbytes


def test_the_page_locked_areas_of_further_models_are_part_of_the_ram(enough: dict[str, int]) -> None:
    area = min(enough.values()) // 2
    shared = Capacities(sum(enough.values()))
    with opened(shared, *NAMES) as both:
        for model in both:
            model.ask_all()
            context = model.host.engine.context
            context.staging.close()
            context.staging = Staging(context.arena, lambda nbytes: np.empty(nbytes, np.uint8), locked_bytes=area)
        free_bytes = shared.ram.nbytes - shared.ram.used_bytes
        assert shared.ram.free_bytes == free_bytes - area, "one comes on top"
        for model in both:
            model.host.rest().result()
            free_bytes = shared.ram.nbytes - shared.ram.used_bytes
            assert shared.ram.free_bytes == free_bytes


def test_one_budget_of_disk_holds_over_both_and_over_a_restart(tmp_path: Path) -> None:
    changes: dict[str, object] = {"disk": 1, "cache_dir": str(tmp_path)}
    shared = Capacities(64 * MIB)
    with opened(shared, *NAMES, **changes) as both:
        for _ in range(3):
            for model in both:
                model.ask_all()
        disk = shared.disk(tmp_path).capacity
        stores = [model.host.cache.disk.blobs for model in both if model.host.cache.disk is not None]
        assert until(lambda: not any(store.num_waiting for store in stores))
        assert all(usage.nbytes for usage in models(tmp_path)), "both have a part"
        assert 0.8 * MIB < disk.most_bytes <= MIB
        assert sum(store.written_bytes for store in stores) <= 1.5 * disk.most_bytes
    assert sum(usage.nbytes for usage in models(tmp_path)) <= MIB
    again = Capacities(64 * MIB)
    with opened(again, NAMES[1], **changes) as (model,):
        disk = again.disk(tmp_path).capacity
        assert disk.used_bytes == sum(usage.nbytes for usage in models(tmp_path)), "what is not open counts"
        for _ in range(3):
            model.ask_all()
        assert disk.most_bytes <= MIB
    assert sum(usage.nbytes for usage in models(tmp_path)) <= MIB
