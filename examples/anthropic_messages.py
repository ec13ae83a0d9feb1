"""A tool call with the anthropic SDK: the model asks for the weather, gets it, and answers.

    pip install anthropic
    leftoff serve &
    python examples/anthropic_messages.py

The second request repeats the first and adds the result of the tool; only what was added is read. LEFTOFF_URL is the
server's address, http://127.0.0.1:8080 unless it is set.
"""

import json
import os

from anthropic import Anthropic
from anthropic.types import Message, MessageParam, ToolParam, ToolResultBlockParam

URL = os.environ.get("LEFTOFF_URL", "http://127.0.0.1:8080")
SUNNY = json.dumps({"temperature": 22, "condition": "sunny"})
MAX_STEPS = 4
WEATHER: ToolParam = {
    "name": "get_weather",
    "description": "Get the current weather for a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def main() -> None:
    client = Anthropic(base_url=URL, api_key="none")
    messages: list[MessageParam] = [{"role": "user", "content": "What is the weather in Paris?"}]
    for _ in range(MAX_STEPS):
        reply = ask(client, messages)
        if reply.stop_reason != "tool_use":
            break
        messages.append({"role": "assistant", "content": reply.content})
        messages.append({"role": "user", "content": run_tools(reply)})


def ask(client: Anthropic, messages: list[MessageParam]) -> Message:
    reply = client.messages.create(model="local", max_tokens=200, messages=messages, tools=[WEATHER])
    for block in reply.content:
        if block.type == "text":
            print(block.text)
        elif block.type == "tool_use":
            print(f"{block.name}({block.input})")
    usage = reply.usage
    print(f"  reused {usage.cache_read_input_tokens} prompt tokens, read {usage.input_tokens}\n")
    return reply


def run_tools(reply: Message) -> list[ToolResultBlockParam]:
    """The result of every call; here it is always sunny."""
    return [
        {
            "type": "tool_result",
            "tool_use_id": block.id,
            "content": SUNNY,
        }
        for block in reply.content
        if block.type == "tool_use"
    ]


if __name__ == "__main__":
    main()
