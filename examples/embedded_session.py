"""The cache and the engine inside a program, without a server: a conversation that branches.

    pip install .
    python examples/embedded_session.py [model.gguf]

Both branches go on from the same turn; neither reads again what came before it.
"""

import sys

from leftoff import Session

BRANCHES = ("What is my name?", "Where do I live?")


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else None  # None: the model that comes with leftoff
    with Session(model) as session:
        trunk = [{"role": "user", "content": "Hello! My name is Anna. I live in Lisbon."}]
        reply = session.generate(trunk, max_tokens=40)
        print(f"{reply.text}\n  {reply.report.line()}\n")
        trunk.append({"role": "assistant", "content": reply.text})
        for question in BRANCHES:
            stream = session.stream([*trunk, {"role": "user", "content": question}], max_tokens=40)
            print(f"> {question}")
            for text in stream:
                print(text, end="", flush=True)
            print(f"\n  {stream.reply.report.line()}\n")


if __name__ == "__main__":
    main()
