"""Values are counted as a decoder would find them, whatever texts hold."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leftoff.chat import num_values
from leftoff.chat.num_values import has_more_values

TRICKY = st.text(st.sampled_from('",[]{}\\ab\n'), max_size=12)
VALUES = st.recursive(
    st.none() | st.integers() | TRICKY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TRICKY, inner, max_size=4),
    max_leaves=12,
)


def separators(value: Any) -> int:  # noqa: ANN401
    """One for each bracket that opens, and one between two members."""
    if not isinstance(value, list | dict):
        return 0
    inner = value if isinstance(value, list) else [*value.values()]
    return max(len(inner), 1) + sum(map(separators, inner))


@pytest.mark.parametrize("slice_bytes", [1, 2, 7, 1 << 20])
@given(value=VALUES)
def test_what_stands_in_texts_is_not_counted(value: Any, slice_bytes: int) -> None:  # noqa: ANN401
    data, wanted = json.dumps(value).encode(), separators(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(num_values, "_SLICE_BYTES", slice_bytes)
        assert not has_more_values(data, wanted)
        assert wanted == 0 or has_more_values(data, wanted - 1)
