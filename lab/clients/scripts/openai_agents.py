"""OpenAI Agents SDK, by the Responses API, which is its default. `openai_agents.py URL QUESTION...`."""

import sys
from typing import Literal

from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool, set_tracing_disabled
from notes import NOTES

url, *questions = sys.argv[1:]
set_tracing_disabled(True)
# connect
config = RunConfig(model_provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
# end


@function_tool
def read_note(name: Literal["todo.txt", "plan.txt"]) -> str:
    """Reads one of the user's notes."""
    return NOTES[name]


agent = Agent(
    name="Notes",
    model="local",
    instructions="You are a helpful assistant with access to the user's notes.",
    tools=[read_note],
)
said = []
for question in questions:
    result = Runner.run_sync(agent, [*said, {"role": "user", "content": question}], run_config=config)
    said = result.to_input_list()
    print(result.final_output)
