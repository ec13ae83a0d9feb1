"""Shapes: which layers a kind has, and the metadata that go with them."""

import pytest

from lab.gpu.shapes import KINDS, SIZES, shape


@pytest.mark.parametrize("kind", KINDS)
def test_a_beginning_has_a_layer_of_each_letter_and_lists_of_its_own_length(kind: str) -> None:
    for size in SIZES:
        whole = shape(kind, size)
        for each in (whole, whole.beginning):
            values = each.sizes(each.layers)
            assert set(each.layers) == set(whole.layers)
            lists = [values.get(name) for name in ("attention.head_count_kv", "feed_forward_length")]
            assert all(len(one) == each.num_layers for one in lists if isinstance(one, list))
        assert whole.layers.startswith(whole.beginning.layers)


def test_the_4b_models_have_half_of_the_layers_and_the_same_widths() -> None:
    for kind in KINDS:
        large, half = shape(kind, "8b"), shape(kind, "4b")
        assert half.num_layers == large.num_layers // 2
        assert half.sizes("A") == large.sizes("A")


def test_attention_stands_where_nemotron_h_has_it() -> None:
    assert [place for place, layer in enumerate(shape("nemotron-h", "8b").layers) if layer == "A"] == [7, 18, 29, 40]
