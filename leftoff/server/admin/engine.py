"""GET /engine: the model and how it runs, for people; and the lines to paste that connect clients to this server."""

import dataclasses
import json
import platform
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from leftoff import __version__
from leftoff.agents import NO_KEY, Connection, agents_for, cramped_agents
from leftoff.cache.cache import Cache
from leftoff.cache.costs import TierCosts
from leftoff.engine.binding.library import Library
from leftoff.engine.devices import all_devices
from leftoff.engine.memory.base import MEANINGS, token_bytes
from leftoff.host.host import ModelHost
from leftoff.hub.download import shown_url
from leftoff.hub.reference import default_model, shown_name
from leftoff.machine import physical_ram
from leftoff.server.dialect import Dialect
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.reply.response import json_response
from leftoff.server.tenant import tenant_of

_SECRET = ("api_key",)


class EngineApi(Dialect):
    """Describe the engine. Where there are several tenants, nothing of the machine's files and settings is told."""

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/engine", "The model, its memory, the machine, and lines to connect", self.engine)]

    async def engine(self, request: Request) -> Response:
        host = self._hosts.opened(request.query_params.get("model"))[0]
        is_alone = tenant_of(request).is_alone
        to = connection_to(host, str(request.base_url).rstrip("/"))
        return json_response(
            {
                "version": __version__,
                "model": _model(host),
                "memory": _memory(host),
                "library": _library(host.model.library, shows_path=is_alone),
                "machine": {
                    "system": f"{platform.system()} {platform.machine()}",
                    "python": platform.python_version(),
                    "memory_bytes": physical_ram(),
                    "threads": host.engine.settings.threads,
                },
                "rates": await host.between_steps(lambda: _rates(host.cache)),
                "settings": _changed(host) if is_alone else {},
                "clients": [{"name": name, "line": line} for name, line in client_lines(to)],
                "cramped_agents": cramped_agents(to.window),
            }
        )


def _model(host: ModelHost) -> dict[str, Any]:
    model = host.model
    return {
        "name": host.name,
        "architecture": model.architecture,
        "parameters": model.num_parameters,
        "bytes": model.size_bytes,
        "trained_context": model.trained_context,
    }


def _memory(host: ModelHost) -> dict[str, Any]:
    memory, kind = host.engine.memory, host.engine.memory.kind
    return {
        "kind": kind.value,
        "meaning": MEANINGS[kind],
        "context_tokens": memory.num_cells,
        "slots": host.settings.slots,
        "token_bytes": token_bytes(memory),
        "snapshot_bytes": memory.snapshot_bytes(1 << 10) if kind.has_snapshots else None,
        "budgets": {tier.budget.name: tier.budget.budget_bytes for tier in host.cache.tiers},
    }


def _library(library: Library, *, shows_path: bool) -> dict[str, Any]:
    path = {"path": str(library.path)} if shows_path else {}
    return path | {"version": library.build.version, "devices": [*map(str, all_devices(library))]}


def _rates(cache: Cache) -> dict[str, float]:
    """The rates as they are measured so far. Called on the engine's thread."""
    costs, disk = cache.costs, cache.disk.blobs.costs if cache.disk is not None else TierCosts()
    return {
        "prefill_tokens_per_s": 1000 * costs.prefill_tokens_per_ms,
        "step_ms": costs.step_ms,
        "load_bytes_per_s": 1000 * costs.load_bytes_per_ms,
        "save_bytes_per_s": 1000 * costs.save_bytes_per_ms,
        "disk_bytes_per_s": 1000 * disk.bytes_per_ms,
    }


def _changed(host: ModelHost) -> dict[str, Any]:
    """The settings that were given and are not the defaults, without API keys and the passwords of URLs.

    What leftoff has chosen itself would look as though it had to be given again: what `--fit` has, the model that is
    taken where none is named, and the name that follows from the file.
    """
    own = {"model": str(default_model()), "alias": (shown_name((), host.model.path),)}
    changed = {
        field.name: value
        for field in dataclasses.fields(host.settings)
        if field.name not in {*_SECRET, *host.chosen}
        and (value := getattr(host.settings, field.name)) not in (field.default, own.get(field.name))
    }
    return {name.replace("_", "-"): _without_password(value) for name, value in changed.items()}


def _without_password(value: object) -> object:
    return shown_url(value) if isinstance(value, str) and "://" in value else value


def connection_to(host: ModelHost, url: str) -> Connection:
    """How clients are told of this model, without its key."""
    key = "YOUR_KEY" if host.settings.api_key else NO_KEY
    return Connection(url, host.name, host.context_tokens, key, host.prompts.sees_pictures)


def client_lines(to: Connection) -> list[tuple[str, str]]:
    """For each client its name and the line to paste.

    Agents are told the window, to compact before it is full. Those that cannot work in it are left out.
    """
    body = json.dumps({"messages": [{"role": "user", "content": "Hello!"}]})
    auth, key = ("", "") if to.key == NO_KEY else (f" -H 'Authorization: Bearer {to.key}'", f" --api-key {to.key}")
    return [
        ("curl", f"curl {to.url}/v1/chat/completions -H 'Content-Type: application/json'{auth} -d '{body}'"),
        ("openai SDK", f'OpenAI(base_url="{to.url}/v1", api_key="{to.key}")'),
        *((agent.title, agent.line(to)) for agent in agents_for(to.window)),
        ("Open WebUI", f"OPENAI_API_BASE_URL={to.url}/v1 OPENAI_API_KEY={to.key} open-webui serve"),
        ("terminal", f"leftoff chat {to.url}{key}"),
    ]
