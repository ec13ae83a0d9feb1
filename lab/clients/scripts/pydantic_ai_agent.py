"""Pydantic AI: an agent with a tool. `pydantic_ai_agent.py URL QUESTION...`."""

import sys
from typing import Literal

from notes import NOTES
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

url, *questions = sys.argv[1:]
# connect
model = OpenAIChatModel("local", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
# end
agent = Agent(model, instructions="You are a helpful assistant with access to the user's notes.")


@agent.tool_plain
def read_note(name: Literal["todo.txt", "plan.txt"]) -> str:
    """Reads one of the user's notes."""
    return NOTES[name]


history = []
for question in questions:
    result = agent.run_sync(question, message_history=history)
    history = result.all_messages()
    print(result.output)
