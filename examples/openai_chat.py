"""A chat with the openai SDK, streamed. Each turn shows how much of its prompt was reused.

    pip install openai
    leftoff serve &
    python examples/openai_chat.py

LEFTOFF_URL is the server's address, http://127.0.0.1:8080 unless it is set.
"""

import os

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

URL = os.environ.get("LEFTOFF_URL", "http://127.0.0.1:8080")
QUESTIONS = ("Hello! My name is Anna.", "What is the capital of France?", "What is my name?")


def main() -> None:
    client = OpenAI(base_url=f"{URL}/v1", api_key="none")
    messages: list[ChatCompletionMessageParam] = []
    for question in QUESTIONS:
        print(f"> {question}")
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": ask(client, messages)})


def ask(client: OpenAI, messages: list[ChatCompletionMessageParam]) -> str:
    """Print a reply as it comes, and what was reused of its prompt; return the reply."""
    stream = client.chat.completions.create(
        model="local", messages=messages, max_tokens=60, stream=True, stream_options={"include_usage": True}
    )
    reply = ""
    for chunk in stream:
        if chunk.choices and (text := chunk.choices[0].delta.content):
            print(text, end="", flush=True)
            reply += text
        if chunk.usage and (details := chunk.usage.prompt_tokens_details):
            print(f"\n  reused {details.cached_tokens} of {chunk.usage.prompt_tokens} prompt tokens\n")
    return reply


if __name__ == "__main__":
    main()
