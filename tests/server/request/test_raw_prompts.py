"""Lists of token ids as JSON: decoded once, and exactly."""

import json

import pytest

from leftoff.server.request.raw_prompts import IdLists

SIZE = 50_000
LONG = [*range(1, 20_000)]


class CountingDecoder:
    """Counts the bytes that are decoded."""

    def __init__(self, lists: IdLists) -> None:
        self._decoder = lists._decoder
        self.num_bytes = 0
        lists._decoder = self  # type: ignore[assignment]

    def decode(self, data: bytes) -> list[int]:
        self.num_bytes += len(data)
        return self._decoder.decode(data)


@pytest.mark.parametrize("separator", [",", ", ", " ,\n "])
def test_a_list_that_goes_on_is_decoded_from_where_it_is_new(separator: str) -> None:
    lists = IdLists(SIZE)

    def decode(items: list[int], namespace: str = "") -> list[int] | None:
        tokens = lists.decode(json.dumps(items, separators=(separator, ":")).encode(), namespace)
        return tokens.tolist() if tokens is not None else None

    assert decode(LONG) == LONG
    counting = CountingDecoder(lists)
    assert decode([*LONG, 7, 49_999]) == [*LONG, 7, 49_999]
    assert decode([*LONG, 71, 8]) == [*LONG, 71, 8]  # 7 is no token of it, though both begin with it
    assert decode([*LONG[:-1], 1999]) == [*LONG[:-1], 1999]
    assert decode(LONG[:-3]) == LONG[:-3]
    assert counting.num_bytes < 200
    assert decode([1, *LONG]) == [1, *LONG]
    assert counting.num_bytes > 90_000
    counting.num_bytes = 0
    assert decode([*LONG, 7], "another tenant") == [*LONG, 7]
    assert counting.num_bytes > 90_000


@pytest.mark.parametrize("end", ["50000]", "-1]", "1.0]", "true]", "null]", '"a"]', "[1]]", "", "1", "01]", ",]", "1}"])
def test_what_is_no_list_of_tokens_is_none(end: str) -> None:
    lists, begin = IdLists(SIZE), json.dumps(LONG)[:-1] + ", "
    assert lists.decode((begin + end).encode(), "") is None
    assert lists.decode(json.dumps(LONG).encode(), "") is not None
    assert lists.decode((begin + end).encode(), "") is None


def test_only_so_much_is_remembered() -> None:
    lists = IdLists(SIZE)
    for first in range(100):
        lists.decode(json.dumps([first, *LONG]).encode(), "")
    assert lists.num_bytes < 32 << 20
