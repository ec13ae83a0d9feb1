"""Two agents take turns over one long header. The header is read once; each keeps its own conversation.

    pip install httpx
    leftoff serve --slots 1 &
    python examples/two_agents.py

Even with one slot, an agent's turn reads its new message only: the turn of the other in between costs nothing.
LEFTOFF_URL is the server's address, http://127.0.0.1:8080 unless it is set.
"""

import os
from dataclasses import dataclass, field

import httpx

URL = os.environ.get("LEFTOFF_URL", "http://127.0.0.1:8080")
GUESTS = "\n".join(f"Guest {number} has room {number + 100}." for number in range(40))
HEADER = {"role": "system", "content": f"You work at the desk of a hotel.\n{GUESTS}"}


@dataclass
class Agent:
    name: str
    questions: tuple[str, ...]
    messages: list[dict[str, str]] = field(default_factory=lambda: [HEADER])

    def ask(self, http: httpx.Client, question: str) -> None:
        """Send the whole conversation with a new question, and print what of it the server had to read."""
        self.messages.append({"role": "user", "content": question})
        body = {"messages": self.messages, "max_tokens": 40, "temperature": 0}
        reply = http.post("/v1/chat/completions", json=body).raise_for_status().json()
        self.messages.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
        timings = reply["timings"]
        print(f"{self.name} · {question}\n  {self.messages[-1]['content']}")
        print(f"  reused {timings['cache_n']}, read {timings['prompt_n']} in {timings['prompt_ms']:.0f} ms\n")


def main() -> None:
    agents = (
        Agent("agent A", ("Hello! My name is Anna.", "What is my name?")),
        Agent("agent B", ("Hello! My name is Ben.", "What is my name?")),
    )
    with httpx.Client(base_url=URL, timeout=600) as http:
        for turn in range(2):
            for agent in agents:
                agent.ask(http, agent.questions[turn])


if __name__ == "__main__":
    main()
