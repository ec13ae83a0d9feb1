"""LiteLLM: chat completions with a tool. `litellm_chat.py URL QUESTION...`."""

import json
import sys

import litellm
from notes import NOTES, READ_NOTE

url, *questions = sys.argv[1:]
messages = [{"role": "system", "content": "You are a helpful assistant with access to the user's notes."}]
for question in questions:
    messages.append({"role": "user", "content": question})
    while True:
        # connect
        reply = litellm.completion(
            model="openai/local", api_base=f"{url}/v1", api_key="none", messages=messages, tools=[READ_NOTE]
        )
        # end
        said = reply.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            break
        for call in said.tool_calls:
            name = json.loads(call.function.arguments)["name"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": NOTES[name]})
    print(said.content)
