"""A reply as blocks: in the order in which it was written, however it came, and none of white space alone."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from leftoff.chat.formats.parts import CallArguments, CallStart, Content, Part, Reasoning
from leftoff.scheduler.job import Finish
from leftoff.server.reply.blocks import Blocks, Step
from leftoff.server.reply.stream import End, Piece


@dataclass
class Told:
    """What the steps tell of the blocks; the blocks themselves must say the same."""

    blocks: Blocks
    steps: list[Step]

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(block.kind, block.text) for block in self.blocks.all]


def tell(*parts: Part) -> Told:
    blocks = Blocks()
    events: list[Piece | End] = [*(Piece(0, "", (part,)) for part in parts), End(Finish.END)]
    return Told(blocks, [step for event in events for step in blocks.take(event)])


def test_one_block_closes_before_the_next_opens() -> None:
    told = tell(
        Reasoning("I must "),
        Reasoning("look"),
        Content("\n\n"),
        CallStart(0, "find_ship"),
        CallArguments(0, '{"sea"'),
        CallArguments(0, ": 7}"),
        Content("\n"),
        CallStart(1, "find_ship"),
        CallArguments(1, "{}"),
        Content(" \n"),
        Content("done"),
    )
    assert told.texts == [("reasoning", "I must look"), ("call", '{"sea": 7}'), ("call", "{}"), ("text", " \ndone")]
    assert [step.change for step in told.steps if step.change != "grown"] == ["opened", "closed"] * 4
    assert [(block.index, block.call, block.name) for block in told.blocks.all[1:3]] == [
        (1, 0, "find_ship"),
        (2, 1, "find_ship"),
    ]
    assert told.blocks.all[1].arguments == {"sea": 7}
    assert told.blocks.num_reasoning_tokens == 3, "white space does not end the reasoning yet"


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "7", '{"a": ' * 100_000])
def test_arguments_that_are_no_object_are_empty(arguments: str) -> None:
    assert tell(CallStart(0, "find_ship"), CallArguments(0, arguments)).blocks.all[0].arguments == {}


PARTS: Any = some.one_of(
    some.builds(Content, some.text("a \n", max_size=3)),
    some.builds(Reasoning, some.text("b \n", max_size=3)),
    some.builds(CallStart, some.just(0), some.just("find_ship")),
)


@given(some.lists(PARTS, max_size=12))
def test_words_are_never_lost_repeated_or_reordered(parts: list[Part]) -> None:
    told = tell(*parts)
    given_words = "".join("!" if isinstance(part, CallStart) else part.text for part in parts)
    told_words = "".join("!" if block.kind == "call" else block.text for block in told.blocks.all)
    assert "".join(told_words.split()) == "".join(given_words.split())
    grown = ["".join(step.text for step in told.steps if step.block is block) for block in told.blocks.all]
    assert grown == [block.text for block in told.blocks.all]
    assert all(block.text.strip() for block in told.blocks.all if block.kind != "call")
