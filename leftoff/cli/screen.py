"""What `leftoff serve` shows once it listens: what runs, where, and lines to paste for clients."""

import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.table import Table

from leftoff import __version__
from leftoff.cli.report import MEANINGS
from leftoff.cli.units import printable, show_bytes, show_count
from leftoff.config import BILLING_LINE, NO_LIMIT, Settings
from leftoff.disk.files import problem_of
from leftoff.disk.folder import model_folder
from leftoff.engine.fingerprint import cache_folder
from leftoff.hub import default_model
from leftoff.server.service import Service

_DEMONSTRATION = "This small model comes with leftoff, as a demonstration. Yours: leftoff serve MODEL"
_LAST_LINE = "Ctrl-C stops it. One line per request follows."


def show_screen(console: Console, service: Service, url: str) -> None:
    console.print(f"\nleftoff {__version__} · {url}\n", style="bold")
    console.print(_grid(facts(service)))
    console.print("\ntry it, or connect", style="bold")
    key = "YOUR_KEY" if service.settings.api_key else "none"
    # Lines to paste are printed as they are: a line that is broken to fit the window cannot be pasted.
    for label, line in client_lines(url, service.model_name, key):
        console.print(f"  {label:<12}", style="cyan", end="")
        console.print(printable(line), soft_wrap=True)
    console.print()
    if service.model.path == default_model():
        console.print(_DEMONSTRATION, style="dim", soft_wrap=True)
    console.print(_LAST_LINE, style="dim")


def facts(service: Service) -> list[tuple[str, str]]:
    model, settings, kind = service.model, service.settings, service.engine.memory.kind
    return [
        (
            "model",
            f"{service.model_name}, {show_count(model.num_parameters)} parameters, {show_bytes(model.size_bytes)}",
        ),
        ("architecture", model.architecture),
        ("memory", f"{kind.value}. {MEANINGS[kind]}"),
        ("context", f"{service.context_tokens:,} tokens, shared by {settings.slots} slots"),
        ("cache", _budgets(service)),
        ("drop-header", _rules(settings.drop_header)),
        ("API key", _access(settings)),
    ]


def client_lines(url: str, model: str, key: str) -> list[tuple[str, str]]:
    """A label, and what to paste."""
    body = json.dumps({"messages": [{"role": "user", "content": "Hello!"}]})
    auth = "" if key == "none" else f" -H 'Authorization: Bearer {key}'"
    return [
        ("curl", f"curl {url}/v1/chat/completions -H 'Content-Type: application/json'{auth} -d '{body}'"),
        ("openai SDK", f'OpenAI(base_url="{url}/v1", api_key="{key}")'),
        (
            "Claude Code",
            f"ANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN={key} ANTHROPIC_MODEL={quote(model)} claude",
        ),
        ("OpenCode", f"echo {quote(_opencode(url, model, key))} > opencode.json"),
        ("Open WebUI", f"OPENAI_API_BASE_URL={url}/v1 OPENAI_API_KEY={key} open-webui serve"),
        ("terminal", f"leftoff chat {url}" + ("" if key == "none" else f" --api-key {key}")),
    ]


def _opencode(url: str, model: str, key: str) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": key},
        "models": {model: {}},
    }
    return json.dumps({"provider": {"leftoff": provider}, "model": f"leftoff/{model}"})


def _budgets(service: Service) -> str:
    settings = service.settings
    ram = "RAM without a limit" if settings.ram == NO_LIMIT else f"up to {settings.ram:,} MiB of RAM"
    if not settings.disk:
        return f"{ram}, nothing on disk: a restart forgets"
    if service.cache.disk is None:
        return f"{ram}, nothing on disk, for the reason above: a restart forgets"
    root = Path(settings.cache_dir or cache_folder()).expanduser()
    problem = problem_of(model_folder(root, service.engine.memory.fingerprint))
    if problem:
        return f"{ram}, nothing on disk ({problem})"
    return f"{ram}, {settings.disk:,} MiB on disk in {root}"


def _rules(rules: Sequence[str]) -> str:
    others = [rule for rule in rules if rule != BILLING_LINE]
    shown = ["the billing line that Claude Code changes on every request"] if BILLING_LINE in rules else []
    return ", ".join([*shown, *others]) or "nothing"


def _access(settings: Settings) -> str:
    if settings.api_key:
        return f"on, {len(settings.api_key)} accepted" if len(settings.api_key) > 1 else "on"
    if _is_local(settings.host):
        return "off: whoever is on this machine may use it"
    return f"off, and it listens on {settings.host}: whoever reaches that may use it. --api-key KEY closes it"


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _grid(rows: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in rows:
        grid.add_row(f"  {label}", printable(value))
    return grid
