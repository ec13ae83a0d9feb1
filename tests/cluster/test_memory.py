"""What replicas tell of their prompts is found again for the next turn, and by other routers."""

import asyncio
import json
from collections.abc import Mapping, Sequence

from leftoff.cluster.chain import Chain, read_chain
from leftoff.cluster.memory import Known, PromptMemory
from leftoff.server.reply.points import AT_HEADER, Point, PromptPoints

SYSTEM = {"role": "system", "content": "word " * 400}


def chain(*texts: str) -> Chain:
    said = [{"role": "user", "content": text} for text in texts]
    return read_chain(json.dumps({"messages": [SYSTEM, *said]}).encode(), {})


def points(*ends: tuple[int, int, bytes]) -> PromptPoints:
    return PromptPoints(ends[-1][1], [Point(*end) for end in ends])


def find(memory: PromptMemory, asked: Chain) -> Known:
    return asyncio.run(memory.find(asked))


def tags(known: Known) -> set[bytes]:
    return {place.tag for place in known.places}


def test_the_next_turn_finds_the_places_of_the_last() -> None:
    memory = PromptMemory()
    memory.learn(chain("Hi"), points((AT_HEADER, 500, b"header"), (0, 520, b"end")))
    known = find(memory, chain("Hi", "Hello", "And you?"))
    assert tags(known) == {b"header", b"end"}
    assert known.positions[:3] == (known.positions[0], 500, 520)
    assert 520 < known.length < 560


def test_another_conversation_finds_the_header_alone() -> None:
    memory = PromptMemory()
    memory.learn(chain("Hi"), points((AT_HEADER, 500, b"header"), (0, 520, b"end")))
    assert tags(find(memory, chain("Ho"))) == {b"header"}


def test_tokens_are_estimated_by_what_prompts_had() -> None:
    memory, text = PromptMemory(), "word " * 1000
    before = find(memory, chain(text)).length
    for _ in range(20):
        memory.learn(chain(text), points((0, 700, b"end")))
    assert find(memory, chain("word " * 999)).length < before / 1.5


class Board:
    """What routers share, without an index between them."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.num_asked = 0

    async def find(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        self.num_asked += 1
        return {key: self.values[key] for key in keys if key in self.values}

    def put(self, values: Mapping[bytes, bytes]) -> None:
        self.values.update(values)


def test_a_router_learns_from_others_once() -> None:
    board = Board()
    one, other = PromptMemory(board), PromptMemory(board)
    texts = ["a", "b", "c", "d", "e"]
    one.learn(chain(*texts), points((AT_HEADER, 500, b"header"), (1, 540, b"d"), (0, 560, b"e")))
    asked = board.num_asked
    assert tags(find(other, chain(*texts, "f"))) == {b"header", b"d", b"e"}
    assert tags(find(other, chain(*texts, "f"))) == {b"header", b"d", b"e"}
    assert board.num_asked == asked + 1, "the second time it knows by itself"


def test_values_of_another_version_are_passed_over() -> None:
    board = Board()
    asked = chain("a", "b", "c", "d", "e")
    board.put(dict.fromkeys(asked.keys, b"\xc1what"))
    assert find(PromptMemory(board), asked).places == ()
