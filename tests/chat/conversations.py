"""Conversations as clients send them. Every message has words of its own, so that a test can look for them."""

from typing import Any

from leftoff.chat.template.render import MessageDict

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "Where to look"},
                    "days": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["place"],
            },
        },
    }
    for name, description in (("get_weather", "Weather of a place"), ("get_tide", "Tide of a harbour"))
]


def system(text: str) -> MessageDict:
    return {"role": "system", "content": text}


def user(text: str) -> MessageDict:
    return {"role": "user", "content": text}


def assistant(text: str | None, **fields: Any) -> MessageDict:  # noqa: ANN401
    return {"role": "assistant", "content": text, **fields}


def call(number: int, name: str, arguments: str | dict[str, Any]) -> dict[str, Any]:
    return {"id": f"call_{number:012}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(number: int, text: str) -> MessageDict:
    return {"role": "tool", "tool_call_id": f"call_{number:012}", "content": text}


RULES = system("You are a harbour master.")
TURNS = [user("Where is the dog?"), assistant("On the pier."), user("And the cat?"), assistant("In the boat.")]
CALLS = [
    user("Storm today?"),
    assistant(None, tool_calls=[call(1, "get_weather", '{"place":"Oslo","days":[1,2]}')]),
    result(1, '{"wind": 9, "note": "calm"}'),
    assistant("No storm."),
    user("High water?"),
    assistant("", reasoning_content="I must ask", tool_calls=[call(2, "get_tide", {"place": "Rome"})]),
    result(2, "at noon"),
]

CONVERSATIONS: dict[str, list[MessageDict]] = {
    "plain": [user("Hello there")],
    "system": [RULES, user("Hello there")],
    "turns": [RULES, *TURNS, user("Good night.")],
    "no system": [*TURNS, user("Good night.")],
    "equal messages": [RULES, user("go on"), assistant("First."), user("go on"), assistant("Second."), user("go on")],
    "white space": [system("  \n Rules \n"), user("\n\n  Where? \n"), assistant(" \n Here. "), user("  Thanks\n\n")],
    "empty reply": [RULES, user("Say nothing."), assistant(""), user("Thank you.")],
    "tools": [RULES, *CALLS],
    "tools, then on": [RULES, *CALLS, assistant("At noon."), user("Good night.")],
    "reasoning": [
        RULES,
        user("Where is the dog?"),
        assistant("On the pier.", reasoning_content="I saw it"),
        user("And the cat?"),
    ],
    "reasoning in the content": [
        RULES,
        user("Where is the dog?"),
        assistant("<think>\nI saw it\n</think>\n\nOn the pier."),
        user("And the cat?"),
    ],
    "reasoning at the end": [RULES, user("Where is the dog?"), assistant("On the pier.", reasoning_content="I saw it")],
    "a result as the user's": [RULES, *TURNS, user("<tool_response>\nfish\n</tool_response>")],
    "developer": [{"role": "developer", "content": "Be brief."}, user("Hello there")],
    "parts": [
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "Hello there"}]},
    ],
    "two rules": [RULES, system("Be brief."), user("Hello there")],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "no thinking": {"enable_thinking": False},
    "thinking": {"enable_thinking": True},
    "thinking kept": {"enable_thinking": True, "preserve_thinking": True},
}
