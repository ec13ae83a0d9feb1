"""LangChain: an agent with a tool. `langchain_agent.py openai|responses|anthropic URL QUESTION...`."""

import sys
from typing import Literal

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from notes import NOTES


@tool
def read_note(name: Literal["todo.txt", "plan.txt"]) -> str:
    """Reads one of the user's notes."""
    return NOTES[name]


kind, url, *questions = sys.argv[1:]
if kind == "anthropic":
    # connect: anthropic
    model = ChatAnthropic(model="local", base_url=url, api_key="none")
    # end
else:
    # connect: openai
    model = ChatOpenAI(model="local", base_url=f"{url}/v1", api_key="none")
    # end
agent = create_agent(model, [read_note], system_prompt="You are a helpful assistant with access to the user's notes.")
messages = []
for question in questions:
    messages = agent.invoke({"messages": [*messages, ("user", question)]})["messages"]
    print(messages[-1].content)
