"""The page about clients: how each is connected, and what was reused of every prompt it sent."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.clients.client import SCRIPTS, Client
from lab.clients.play import Done
from lab.report import table

_ADDRESS = "http://127.0.0.1:8080"
_HEAD = """# Clients

Written by `make clients`, which installs each client from npm or PyPI, and plays it against a server with a window of
131,072 tokens and the model that comes with leftoff, or its first layers, which read the same tokens in less time. It
is too small to follow an agent's instructions: where the last message asks for a tool, a proxy in front of the server
adds the `tool_choice` that makes the model call it, or search for it first; elsewhere it demands a few words. Else
prompts are what the client sends when it is connected with the lines shown and nothing else. A line is a request: so
many tokens of its prompt were reused, and so many read. Where a conversation goes on, only what is new is read, and
`make clients` fails if it is more; the first prompt of a fresh session, and of a compacted one, finds the header.

Claude Code and Qwen Code work on a project with rules of 12,000 tokens, CLAUDE.md or QWEN.md. smolagents tells a call
again in words of its own, which is then read. aider puts its instructions and the list of files behind the conversation
in every turn. Cline goes on with a conversation in a terminal only. Crush is not here: its npm package brings no
program, but loads it from elsewhere.

<!-- no block of this page is run: make clients plays them, which takes npm, PyPI and the network -->
"""


def line(done: Done) -> str:
    """A step for the terminal."""
    asked = " · ".join(f"{one.reused:,} of {one.prompt_tokens:,} reused" for one in done.asked)
    return "\n".join([f"  {done.step.title}: {asked}", *(f"    FAILED: {problem}" for problem in done.problems)])


def page(catalog: Sequence[Client], folder: Path) -> str:
    """The page, made from the files that the clients have left there."""
    clients = [client for client in catalog if (folder / f"{client.name}.json").exists()]
    played = {client.name: json.loads((folder / f"{client.name}.json").read_text()) for client in clients}
    parts = [_HEAD, _overview(clients, played)]
    for client in clients:
        parts += [
            f"## {client.title}\n",
            f"Version {client.version}.\n",
            connect(client),
            *filter(None, [_kept(played[client.name]) if client.is_chat else ""]),
            table(("", "prompt", "reused", "read"), _steps(played[client.name], client.is_chat), words=[""]),
        ]
    return "\n".join(parts).rstrip() + "\n"


def _overview(clients: Sequence[Client], played: dict[str, Any]) -> str:
    head = ("client", "version", "first prompt", "next turn: read", "after a tool: read", "fresh session: reused")
    return table(head, _counts(clients, played), words=head[:2])


def _counts(clients: Sequence[Client], played: dict[str, Any]) -> Iterator[list[str]]:
    for client in clients:
        steps = played[client.name]
        first, *others = [one for step in steps for one in step["asked"]] or [None]
        if first is None or not client.is_chat:
            continue
        fresh = next((step["asked"][0] for step in steps if _is_fresh(step) and step["asked"]), None)
        share = f"{fresh['reused'] / fresh['prompt_tokens']:.1%}" if fresh else ""
        title = f"[{client.title}](#{_anchor(client.title)})"
        after = str(others[0]["computed"]) if others and client.calls_notes else ""
        yield [title, client.version, f"{first['prompt_tokens']:,}", _next_turn(steps), after, share]


def _next_turn(steps: Any) -> str:  # noqa: ANN401
    """Tokens read in the last turn of the first conversation that is not about a tool."""
    turns = [step for step in steps if not step["step"]["title"].startswith(("fresh", "a tool")) and step["asked"]]
    return str(turns[-1]["asked"][-1]["computed"]) if turns else ""


def _is_fresh(step: Any) -> bool:  # noqa: ANN401
    return bool(step["step"]["title"].startswith("fresh"))


def _kept(steps: Any) -> str:  # noqa: ANN401
    """Says why the very first prompt was known."""
    first = next((step["asked"][0] for step in steps if step["asked"]), None)
    return "The server's cache was kept from an earlier run.\n" if first and first["reused"] else ""


def _steps(steps: Any, is_chat: bool) -> Iterator[list[str]]:  # noqa: ANN401
    """A row for each request; all of a step in one where they are no turns of a chat."""
    for step in steps:
        asked = step["asked"]
        for number, some in enumerate([[one] for one in asked] if is_chat else [asked]):
            title = step["step"]["title"] if number == 0 else ""
            sums = (sum(one[key] for one in some) for key in ("prompt_tokens", "reused", "computed"))
            yield [title if is_chat else f"{len(asked)} requests", *(f"{count:,}" for count in sums)]
        yield from ([f"failed: {problem}", "", "", ""] for problem in step["problems"])


def connect(client: Client) -> str:
    """The lines that connect it, as they were run, as Markdown."""
    text = client.connect or _lines_of(client.script, client.part)
    return text.replace("{url}", _ADDRESS).rstrip() + "\n"


def _lines_of(script: str, part: str) -> str:
    """The lines of a script between `connect: PART` and `end`, as they were run."""
    language, mark = ("js", "//") if script.endswith("cjs") else ("python", "#")
    begin = f"{mark} connect: {part}" if part else f"{mark} connect"
    lines = (SCRIPTS / script).read_text().splitlines()
    start = next(number for number, text in enumerate(lines) if text.strip() == begin)
    end = next(number for number, text in enumerate(lines) if number > start and text.strip() == f"{mark} end")
    indent = len(lines[start]) - len(lines[start].lstrip())
    shown = "\n".join(text[indent:] for text in lines[start + 1 : end])
    shown = shown.replace('f"{url}/v1"', f'"{_ADDRESS}/v1"').replace("`${url}/v1`", f'"{_ADDRESS}/v1"')
    shown = shown.replace("=url", f'="{_ADDRESS}"')
    return f"```{language}\n{shown}\n```"


def _anchor(title: str) -> str:
    return "".join(letter for letter in title.lower() if letter.isalnum() or letter in "-_ ").replace(" ", "-")
