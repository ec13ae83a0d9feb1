"""Which tools a reply may or must call, by whatever a client writes into `tool_choice`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftoff.chat.formats.base import function_of
from leftoff.chat.template.render import ToolDict
from leftoff.server.http.errors import bad_field

_WORDS = ("auto", "none", "required")


@dataclass(frozen=True)
class ToolChoice:
    """`tools` are those that may be called. If it `must`, the reply is nothing but calls."""

    tools: tuple[ToolDict, ...]
    must: bool = False


def choose_tools(choice: str | Mapping[str, Any] | None, tools: Sequence[ToolDict] | None) -> ToolChoice:
    """Raises what names the field if the choice makes no sense, or has no tools to choose from."""
    offered = {name: tool for tool in tools or () if isinstance(name := function_of(tool).get("name"), str)}
    if isinstance(choice, Mapping):
        mode, names = _narrowed(choice)
        return _checked(mode, [_tool(offered, name) for name in names])
    if choice not in (None, *_WORDS):
        raise bad_field("tool_choice", f"is {choice!r}: must be one of {', '.join(_WORDS)}, or name a function")
    return _checked(choice or "auto", [*offered.values()])


def _checked(mode: str, tools: Sequence[ToolDict]) -> ToolChoice:
    if mode == "required" and not tools:
        raise bad_field("tool_choice", "'required' needs tools to choose from: give some, or use 'auto'")
    return ToolChoice(() if mode == "none" else tuple(tools), must=mode == "required")


def _narrowed(choice: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """One function, or OpenAI's list of those that are allowed."""
    if choice.get("type") == "allowed_tools":
        inner = choice.get("allowed_tools", choice)
        listed = inner.get("tools") if isinstance(inner, Mapping) else None
        if isinstance(listed, list) and all(isinstance(tool, Mapping) for tool in listed):
            return str(inner.get("mode", "auto")), [function_of(tool).get("name") for tool in listed]
        raise bad_field("tool_choice.allowed_tools.tools", "must be a list of functions")
    return "required", [function_of(choice).get("name")]


def _tool(offered: Mapping[str, ToolDict], name: object) -> ToolDict:
    if not isinstance(name, str) or name not in offered:
        raise bad_field("tool_choice", f"there is no tool {name!r}: must be one of {', '.join(offered) or 'none'}")
    return offered[name]
