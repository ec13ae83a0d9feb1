"""Teaches to call tools: the right one, with the user's values, and to tell what came back."""

from dataclasses import dataclass

from training.chat import Call, Chat, Json, Message, dumped
from training.content import Table as Row
from training.draw import Draw, capitalised, fill, uncapitalised
from training.skills.invented import invent_tool
from training.skills.tool import Tool, make_tool, rename
from training.values import value

_INVENTED = 0.2  # share of tools that do not exist
_RENAMED = 0.75  # of the novelty: share of tools with names that mean nothing
_LEADS = ("", "", "", "", "", "", "", "Let me check.", "One moment, please.", "I will look that up.")


@dataclass(frozen=True)
class Use:
    """One use of a tool: what is asked, the call it takes, what comes back and what is made of that."""

    tool: Tool
    ask: str
    call: Call
    result: Json
    answer: str


class Toolbox:
    def __init__(self, draw: Draw, chat: Chat, num_tools: int) -> None:
        self._draw, self._chat = draw, chat
        self.tools = [_draw_tool(draw, row) for row in _rows(draw, num_tools)]
        chat.tools = [tool.spec for tool in self.tools]

    def step(self) -> None:
        draw, use = self._draw, self.use()
        ask = use.ask
        if draw.chance(0.12):
            ask = self._ask_back(use)
        elif draw.chance(0.1) and not ask.startswith("I"):
            ask = draw.pick(("Please ", "Hey, ", "Can you do this: ")) + uncapitalised(ask)
        elif draw.chance(0.08):
            ask = ask.rstrip(".?!")
        failed = draw.chance(0.06)
        result = {"error": "not found"} if failed else use.result
        answer = "I'm sorry, that did not work. Could you check the details?" if failed else use.answer
        why = f"The tool {use.tool.name} fits. The arguments are {', '.join(map(str, use.call.arguments.values()))}."
        self._chat.messages += [
            Message("user", ask),
            Message("assistant", draw.pick(_LEADS), why, use.call),
            Message("tool", dumped(result)),
            Message("assistant", self._chat.style(answer), "Now I can tell the user the result."),
        ]
        self._chat.topics.append(use.tool.row["topic"])

    def use(self) -> Use:
        draw = self._draw
        tool = draw.pick(self.tools)
        row = tool.row
        slots: dict[str, object] = {slot: value(draw, kind["value"]) for slot, kind in row["parameters"].items()}
        arguments = {name: _typed(row["parameters"][slot], str(slots[slot])) for slot, name in tool.parameters.items()}
        result = {key: fill(kind, slots) if "{" in kind else value(draw, kind) for key, kind in row["result"].items()}
        ask, answer = fill(draw.pick(row["asks"]), slots), fill(draw.pick(row["says"]), slots | result)
        json_result = {key: True if text == "true" else _number(text) for key, text in result.items()}
        return Use(tool, ask, Call(tool.name, arguments), json_result, capitalised(answer))

    def _ask_back(self, use: Use) -> str:
        """The first message lacks the values; returns the second, which has them."""
        ask, back = use.tool.row["missing"]
        self._chat.turn(ask, back, f"I need more information before I can use {use.tool.name}.")
        return self._draw.pick(("", "", "It's ", "Okay: ")) + ", ".join(map(str, use.call.arguments.values()))


def _rows(draw: Draw, count: int) -> list[Row]:
    """Different ones, a row of greater weight more often: it has the better chance of a high number."""
    numbers = [(draw.random.random() ** (1 / row.get("weight", 1)), row) for row in draw.content.tools]
    return [row for _, row in sorted(numbers, key=lambda pair: pair[0], reverse=True)[:count]]


def _draw_tool(draw: Draw, row: Row) -> Tool:
    if draw.content.novelty and draw.chance(_INVENTED):
        return invent_tool(draw)
    tool = make_tool(draw, row)
    return rename(draw, tool) if draw.chance(draw.content.novelty * _RENAMED) else tool


def _typed(parameter: Row, text: str) -> object:
    return int(text) if parameter.get("type") == "integer" else text


def _number(text: str) -> object:
    is_number = text.lstrip("-").replace(".", "", 1).isdigit() and not text.startswith("0") and len(text) < 5
    return (float(text) if "." in text else int(text)) if is_number else text
