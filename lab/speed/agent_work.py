"""Replies of the kinds that coding agents get, written out: what is measured is how fast they come.

A grammar of one text makes a model write it, in the tokens it would choose. Texts are this repository's own files.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Work:
    """A prompt and its reply. Works of one task follow each other on a server."""

    task: str
    prompt: str
    reply: str

    @property
    def grammar(self) -> str:
        return f"root ::= {json.dumps(self.reply, ensure_ascii=False)}"


def agent_work(number: int) -> Iterator[Work]:
    """One of each kind; another number gives other texts."""
    yield from (_rewrite(number), *_tool_calls(number), _quote(number), *_branches(number))


def nothing_to_repeat(number: int) -> Work:
    """A reply of words in random order, which share few pairs with their prompt and with each other."""
    rng = np.random.default_rng(number)
    words = sorted({word for word in _text("docs/memory.md").split() if word.isalpha()})
    prompt, reply = (" ".join(rng.choice(words, size)) for size in (300, 160))
    return Work("nothing to repeat", prompt, reply)


def _text(name: str) -> str:
    return (_ROOT / name).read_text()


def _rewrite(number: int) -> Work:
    """A file that was read, with one function changed."""
    names = ("leftoff/cache/turn.py", "leftoff/cache/tier.py", "leftoff/scheduler/job.py", "leftoff/cache/node.py")
    source = _text(names[number % len(names)])[:2400]
    lines = source.split("\n")
    middle = len(lines) // 2
    changed = [
        *lines[:middle],
        "        # checked by the caller",
        "        assert self.position >= 0",
        *lines[middle + 2 :],
    ]
    prompt = f"This is {names[number % len(names)]}:\n{source}\nWrite it again with one function changed.\n"
    return Work("rewrite a file", prompt, "\n".join(changed))


def _tool_calls(number: int) -> Iterator[Work]:
    """The same tool with other arguments, after two calls of it."""
    paths = [f"leftoff/cache/{name}.py" for name in ("plan", "save", "budget", "restore")]
    calls = [
        json.dumps(
            {
                "name": "search_in_files",
                "arguments": {"path": path, "pattern": f"def {path[14:18]}_{number}", "recursive": True, "limit": 50},
            },
            indent=1,
        )
        for path in paths
    ]
    prompt = (
        f"Tools: search_in_files.\nCall: {calls[0]}\nResult: nothing found.\nCall: {calls[1]}\nResult: one.\nCall: "
    )
    yield Work("repeat a tool call", prompt, calls[2])
    yield Work("repeat a tool call", f"{prompt}{calls[2]}\nResult: two.\nCall: ", calls[3])


def _quote(number: int) -> Work:
    """An answer that quotes a document."""
    document = _text("docs/memory.md")[1200 * (number % 4) :][:2800]
    sentences = [sentence for sentence in document.split(". ") if 60 < len(sentence) < 400][:5]
    reply = "The document answers it in these places:\n" + "\n".join(f'- "{sentence}."' for sentence in sentences)
    return Work("quote a document", f"{document}\nQuestion: what does it say on memory?\n", reply)


def _branches(number: int) -> Iterator[Work]:
    """The same task again, beside a conversation that has done it: most of the reply is the one given there."""
    header = "You are an assistant for this repository. Answer in full sentences, and name the files you speak of. " * 3
    text = _text("ARCHITECTURE.md")
    answer = text[text.index("1. For each") :][700 * (number % 3) :][:1300]
    yield Work("a second branch", f"{header}\nExplain the cache, attempt {number}.\n", answer)
    changed = answer.replace("tier", "level", 1).replace("RAM", "memory", 1)
    yield Work("a second branch", f"{header}\nExplain the cache once more, and shortly, attempt {number}.\n", changed)
