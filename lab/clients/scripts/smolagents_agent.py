"""smolagents: an agent that calls tools. `smolagents_agent.py URL QUESTION...`."""

import sys

from notes import NOTES
from smolagents import OpenAIServerModel, Tool, ToolCallingAgent


class ReadNote(Tool):
    """The tool, as smolagents wants it."""

    name = "read_note"
    description = "Reads one of the user's notes."
    inputs = {"name": {"type": "string", "description": "The name of the note.", "enum": [*NOTES]}}  # noqa: RUF012
    output_type = "string"

    def forward(self, name: str) -> str:
        return NOTES[name]


url, *questions = sys.argv[1:]
# connect
model = OpenAIServerModel("local", api_base=f"{url}/v1", api_key="none")
# end
agent = ToolCallingAgent([ReadNote()], model, max_steps=2)
for number, question in enumerate(questions):
    print(agent.run(question, reset=number == 0))
