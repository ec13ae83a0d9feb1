"""Teaches to call tools: the right one, with the user's values, and to tell what came back."""

from dataclasses import dataclass

from training.chat import Call, Chat, Json, Message, dumped
from training.coined import rare_words
from training.content import Table as Row
from training.draw import Draw, capitalised, fill, uncapitalised
from training.values import value

_INVENTED = 0.3  # share of tools that do not exist
_ARGUMENTS = ("anything", "city", "first_name", "full_name", "digits", "code", "thing", "day", "clock")
_LEADS = ("", "", "", "", "", "", "", "Let me check.", "One moment, please.", "I will look that up.")


@dataclass(frozen=True)
class Tool:
    """One tool with the names drawn for this conversation: slot to parameter name."""

    row: Row
    name: str
    parameters: dict[str, str]

    @property
    def spec(self) -> Json:
        slots: dict[str, Row] = self.row["parameters"]
        properties = {
            name: {"type": slots[slot].get("type", "string"), "description": slots[slot]["description"]}
            for slot, name in self.parameters.items()
        }
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        function = {"name": self.name, "description": self.row["description"], "parameters": schema}
        return {"type": "function", "function": function}


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
        self.tools = [_make_tool(draw, row) for row in draw.some(draw.content.tools, num_tools)]
        if draw.content.novelty:
            self.tools = [_invent_tool(draw) if draw.chance(_INVENTED) else tool for tool in self.tools]
        chat.tools = [tool.spec for tool in self.tools]

    def step(self) -> None:
        draw, use = self._draw, self.use()
        ask = use.ask
        if draw.chance(0.12):
            ask = self._ask_back(use)
        elif draw.chance(0.1) and not ask.startswith("I"):
            ask = draw.pick(("Please ", "Hey, ", "Can you do this: ")) + uncapitalised(ask)
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


def _invent_tool(draw: Draw) -> Tool:
    """A tool that does not exist: only its description says when to call it and how."""
    verb, parameters = draw.word("verb"), draw.some(rare_words().common, draw.pick((1, 1, 2)))
    noun = draw.pick(rare_words().common)
    given = " and ".join(f"{parameter} {{{parameter}}}" for parameter in parameters)
    only = ", ".join(f"{{{parameter}}}" for parameter in parameters)
    asks = [
        f"{capitalised(verb)} the {noun} with {given}.",
        f"Please {verb} the {noun}: {only}.",
        f"I want you to {verb} the {noun}. Take {only}.",
        f"Can you {verb} the {noun} for {only}?",
        f"I need the {noun} for {only}.",
        f"{capitalised(noun)} for {only}, please.",
    ]
    row: Row = {
        "topic": f"the {noun}",
        "description": draw.pick(
            (f"{capitalised(verb)} the {noun}.", f"Use this to {verb} the {noun}.", f"For the {noun}.")
        ),
        "parameters": {name: {"description": f"The {name}", "value": draw.pick(_ARGUMENTS)} for name in parameters},
        "asks": asks,
        "says": [f"I did {verb} the {noun}.", "Done.", "It is done."],
        "result": {"ok": "true"},
        "missing": [f"{capitalised(verb)} the {noun}.", f"Sure. Please tell me the {' and the '.join(parameters)}."],
    }
    name = draw.pick((f"{verb.split()[0]}_{noun}", noun, f"{noun}_{draw.pick(rare_words().common)}"))
    return Tool(row, name, {parameter: parameter for parameter in parameters})


def _make_tool(draw: Draw, row: Row) -> Tool:
    """Names are drawn anew, sometimes ones that mean nothing: what counts is what the prompt says."""
    name = draw.pick(row["names"])
    parameters = {slot: draw.pick(kind["names"]) for slot, kind in row["parameters"].items()}
    if draw.chance(draw.content.novelty * 0.75):
        name = draw.pick((f"{name}_{draw.pick(rare_words().common)}", "_".join(draw.some(rare_words().common, 2))))
        new_names = draw.some(rare_words().common, len(parameters))
        parameters = dict(zip(parameters, new_names, strict=True))
    return Tool(row, name, parameters)


def _typed(parameter: Row, text: str) -> object:
    return int(text) if parameter.get("type") == "integer" else text


def _number(text: str) -> object:
    is_number = text.lstrip("-").replace(".", "", 1).isdigit() and not text.startswith("0") and len(text) < 5
    return (float(text) if "." in text else int(text)) if is_number else text
