"""A tool as a conversation has it: a row of `tools.toml`, or one that was made up, with the names drawn for it."""

from dataclasses import dataclass, replace

from training.chat import Json
from training.coined import rare_words
from training.content import Table as Row
from training.draw import Draw

_UNDESCRIBED = 0.06  # share of tools whose parameters have only names


@dataclass(frozen=True)
class Tool:
    """`parameters` are the names by slot, `described` is what is said about them."""

    row: Row
    name: str
    description: str
    parameters: dict[str, str]
    described: dict[str, str]

    @property
    def spec(self) -> Json:
        properties = {name: self._property(slot) for slot, name in self.parameters.items()}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        function = {"name": self.name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}

    def _property(self, slot: str) -> Json:
        kind = {"type": self.row["parameters"][slot].get("type", "string")}
        return kind | ({"description": self.described[slot]} if self.described else {})


def make_tool(draw: Draw, row: Row) -> Tool:
    """The names and descriptions are drawn anew for every conversation."""
    slots: dict[str, Row] = row["parameters"]
    name = draw.pick(row["names"])
    parameters = _distinct(draw, {slot: kind["names"] for slot, kind in slots.items()})
    described = {slot: _one_of(draw, kind["description"]) for slot, kind in slots.items()}
    tool = Tool(row, name, _one_of(draw, row["description"]), parameters, described)
    return replace(tool, described={}) if draw.content.novelty and draw.chance(_UNDESCRIBED) else tool


def rename(draw: Draw, tool: Tool) -> Tool:
    """Names that mean nothing: what counts is what the prompt says."""
    name = draw.pick((f"{tool.name}_{draw.pick(rare_words().common)}", "_".join(draw.some(rare_words().common, 2))))
    names = draw.some(rare_words().common, len(tool.parameters))
    return replace(tool, name=name, parameters=dict(zip(tool.parameters, names, strict=True)))


def _distinct(draw: Draw, names: dict[str, list[str]]) -> dict[str, str]:
    """One name for each slot, no two of them equal."""
    while True:
        drawn = {slot: draw.pick(choices) for slot, choices in names.items()}
        if len(set(drawn.values())) == len(drawn):
            return drawn


def _one_of(draw: Draw, texts: str | list[str]) -> str:
    return texts if isinstance(texts, str) else draw.pick(texts)
