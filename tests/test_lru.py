"""The bounded cache keeps what was used last, and never more than its limits."""

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from leftoff.lru import LruCache


def sizes(**limits: int) -> LruCache[str, int]:
    return LruCache(size_of=lambda _, size: size, **limits)


def test_the_least_recently_used_entry_goes_first() -> None:
    cache: LruCache[str, int] = LruCache(max_entries=2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_peeking_is_no_use() -> None:
    cache: LruCache[str, int] = LruCache(max_entries=2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.peek("a") == 1
    cache.put("c", 3)
    assert cache.peek("a") is None


def test_the_first_value_stays_and_counts_as_used() -> None:
    cache: LruCache[str, int] = LruCache(max_entries=2)
    assert cache.put_if_absent("a", 1) == 1
    cache.put("b", 2)
    assert cache.put_if_absent("a", 9) == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b")) == (1, None)


def test_bytes_are_counted_when_entries_come_change_and_go() -> None:
    cache = sizes(max_bytes=10)
    cache.put("a", 4)
    cache.put("a", 5)
    cache.put("b", 3)
    assert (len(cache), cache.num_bytes) == (2, 8)
    assert (cache.pop("a"), cache.pop("a")) == (5, None)
    assert cache.num_bytes == 3
    cache.put("large", 11)
    assert (len(cache), cache.num_bytes) == (0, 0), "an entry larger than the cache is not kept"


def test_entries_can_be_removed_by_their_values() -> None:
    cache = sizes(max_bytes=100)
    for number in range(6):
        cache.put(str(number), number)
    cache.remove_if(lambda number: number % 2 == 0)
    assert (len(cache), cache.num_bytes) == (3, 1 + 3 + 5)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 6), st.booleans())))
def test_it_holds_the_latest_entries_that_fit(uses: list[tuple[str, int, bool]]) -> None:
    cache, expected = sizes(max_bytes=12), OrderedDict[str, int]()
    for key, size, writes in uses:
        if writes:
            cache.put(key, size)
            expected[key] = size
            expected.move_to_end(key)
            while sum(expected.values()) > 12:
                expected.popitem(last=False)
        else:
            assert cache.get(key) == expected.get(key)
            if key in expected:
                expected.move_to_end(key)
    assert {key: cache.peek(key) for key in "abcdef" if cache.peek(key)} == expected
    assert cache.num_bytes == sum(expected.values())
