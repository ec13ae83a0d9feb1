"""llama-server's /slots: what each slot does; its sequence saved under a name, restored, or dropped."""

import asyncio
import re
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leftoff.cache.sequences import EngineSequence
from leftoff.host.host import ModelHost
from leftoff.host.slot_files import SlotFile
from leftoff.scheduler.run import Run
from leftoff.server.dialect import Dialect
from leftoff.server.http.body import read_body
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.errors import ApiError, bad_field, busy
from leftoff.server.llamacpp import types as wire
from leftoff.server.llamacpp.writer import settings_of
from leftoff.server.reply.joined import Answer, shown
from leftoff.server.reply.response import json_response
from leftoff.server.reply.stream import ReplyStream
from leftoff.server.tenant import Tenant, tenant_of

_ACTIONS = ("save", "restore", "erase")
_FILE_NAME = re.compile(r"[\w+@-][\w .+@-]{0,127}")  # a name, and no path


class Slots(Dialect):
    """A tenant sees, saves, restores and drops only what is its own."""

    def endpoints(self) -> list[Endpoint]:
        summary = "?action=save|restore|erase: a slot's sequence"
        return [
            Endpoint("GET", "/slots", "State of the slots", self.states),
            Endpoint("POST", "/slots/{id}", summary, self.act, wire.SlotRequest, decodes=False),
        ]

    async def states(self, request: Request) -> Response:
        """The slots of all models, or of the one that the query names. Of several, each slot says its model."""
        tenant = tenant_of(request)

        async def show(host: ModelHost) -> Answer:
            return {"slots": await host.between_steps(lambda: _states(host, tenant))}

        states = (await shown(self._hosts, request, show))["slots"]
        if request.query_params.get("fail_on_no_slot") and all(state.is_processing for state in states):
            raise ApiError(503, "every slot is at work", code="no_slot", kind="unavailable_error")
        return json_response(states)

    async def act(self, request: Request) -> Response:
        """Saves, restores or erases a slot of the first model, or of the one that the query names."""
        host = await self._host_of(request)
        number, action = _number(host, request), request.query_params.get("action")
        began = time.perf_counter()
        match action:
            case "save":
                done = await _save(host, request, number)
            case "restore":
                done = await _restore(host, request)
            case "erase":
                tenant = tenant_of(request)
                return json_response(await host.between_steps(lambda: _erase(host, tenant, number)))
            case _:
                raise bad_field("action", f"is {action!r}: must be one of {', '.join(_ACTIONS)}")
        return json_response(done | {"timings": {f"{action}_ms": 1000 * (time.perf_counter() - began)}})


async def _save(host: ModelHost, request: Request, number: int) -> dict[str, Any]:
    name, tenant = await _file_name(request), tenant_of(request)
    file = await host.between_steps(lambda: _saved(host, tenant, number, name))
    num_tokens = file.tokens.size
    return {"id_slot": number, "filename": name, "n_saved": num_tokens, "n_written": file.state_bytes}


async def _restore(host: ModelHost, request: Request) -> dict[str, Any]:
    """Loads a sequence into any idle slot: prompts find it wherever it is."""
    name, cache = await _file_name(request), host.cache
    file = host.slot_files.get(tenant_of(request).name, name)
    if file is None:
        raise bad_field("filename", f"nothing is saved under {name!r}: save a slot first")
    tokens, namespace = file.tokens, file.namespace
    fetch = await host.between_steps(lambda: cache.fetch_sequence(tokens, namespace))
    if fetch is not None:
        await asyncio.to_thread(fetch.lost)  # waits until all has arrived
    loaded = await host.between_steps(lambda: cache.load_sequence(tokens, namespace, fetch))
    if loaded is None:
        raise busy("every slot is at work")
    if not loaded.num_tokens:
        raise bad_field("filename", f"the sequence saved under {name!r} was evicted: send its prompt again")
    return {
        "id_slot": loaded.seq,
        "filename": name,
        "n_restored": loaded.num_tokens,
        "n_read": file.state_bytes * loaded.num_tokens // tokens.size,
    }


def _number(host: ModelHost, request: Request) -> int:
    text, num_slots = request.path_params["id"], len(host.cache.sequences)
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and int(text) < num_slots):
        raise bad_field("id", f"{text!r} is not a slot: must be between 0 and {num_slots - 1}")
    return int(text)


# --- on the engine's thread


def _idle(host: ModelHost, number: int) -> EngineSequence:
    sequence = host.cache.sequences[number]
    if sequence.is_busy:
        raise busy(f"slot {number} is at work")
    return sequence


def _saved(host: ModelHost, tenant: Tenant, number: int, name: str) -> SlotFile:
    sequence, memory = _idle(host, number), host.cache.memory
    if sequence.is_empty or not tenant.sees(sequence.namespace):
        raise bad_field("id", f"slot {number} holds nothing of yours: see GET /slots")
    host.cache.tiers.save(sequence)
    nbytes = memory.page_bytes(sequence.length) + memory.snapshot_bytes(sequence.length)
    file = SlotFile(sequence.namespace, sequence.tokens.tobytes(), nbytes)
    host.slot_files.put(tenant.name, name, file)  # on this thread, where a deletion that comes next removes it
    return file


def _erase(host: ModelHost, tenant: Tenant, number: int) -> dict[str, int]:
    sequence = _idle(host, number)
    num_tokens = sequence.length if tenant.sees(sequence.namespace) else 0
    if num_tokens:
        host.cache.drop_sequence(sequence)
    return {"id_slot": number, "n_erased": num_tokens}


def _states(host: ModelHost, tenant: Tenant) -> list[wire.SlotState]:
    runs = {run.turn.seq: run for run in tenant.own(host.scheduler.runs)}
    return [_state(host, sequence, runs.get(sequence.seq), tenant) for sequence in host.cache.sequences.slots]


def _state(host: ModelHost, sequence: EngineSequence, run: Run | None, tenant: Tenant) -> wire.SlotState:
    has_drafts = host.scheduler.drafter is not None
    state = wire.SlotState(sequence.seq, host.context_tokens, sequence.is_busy, has_drafts)
    if tenant.is_alone or tenant.sees(sequence.namespace):
        state.n_tokens = sequence.length
    if run is None:
        return state
    job, report, stream = run.job, run.turn.report, run.sink
    num_generated = run.timings.num_generated
    state.n_prompt_tokens = report.prompt_tokens
    state.n_prompt_tokens_cache = report.reused
    state.n_prompt_tokens_processed = min(run.turn.position, report.prompt_tokens) - report.reused
    num_left = -1 if job.max_tokens is None else job.max_tokens - num_generated
    state.next_token = [{"has_next_token": run.finish is None, "n_remain": num_left, "n_decoded": num_generated}]
    if isinstance(stream, ReplyStream):
        state.id_task = stream.id
        state.params = settings_of(stream.job, is_stream=True)
    return state


async def _file_name(request: Request) -> str:
    name = (await read_body(request, wire.SlotRequest)).filename
    if not _FILE_NAME.fullmatch(name):
        raise bad_field("filename", f"{name[:40]!r} is not a name: give letters, digits and . - _ + @, and no folder")
    return name
