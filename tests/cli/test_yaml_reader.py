"""The YAML reader gives the same values as the library's loader, faster."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.cli.yaml_reader import UnsupportedYamlError, load_all
from tests.properties import with_examples

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=8)
    | st.sampled_from(["1", "0x1f", "yes", "no", "null", "~", "<<", "=", "1e3", "1_000", "- a"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@with_examples(100)
@given(st.lists(VALUES, min_size=1, max_size=3), st.sampled_from([None, True, False]))
def test_written_yaml_is_read_back(documents, flow):
    """In block and in flow style, one document or several."""
    text = yaml.safe_dump_all(documents, default_flow_style=flow, allow_unicode=True)

    assert list(load_all(text)) == documents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 2024-01-31", {"a": "2024-01-31"}),
        ("a: '1'\nb: \"2\"\nc: !!str 3\nd: !!int '4'", {"a": "1", "b": "2", "c": "3", "d": 4}),
        ("1: a\ntrue: b\nnull: c\n1.5: d", {"1": "a", "true": "b", "null": "c", "1.5": "d"}),
        ("a: |\n  x\n  y\nb: >\n  x\n  y\n", {"a": "x\ny\n", "b": "x y\n"}),
        ("a: &x [1, &y {b: 2}]\nc: *x\nd: *y", {"a": [1, {"b": 2}], "c": [1, {"b": 2}], "d": {"b": 2}}),
        ("a: &x {b: 1, c: 2}\nd: {c: 3, <<: *x}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("<<: [{a: 1}, {a: 2, b: 2}]\nc: 3", {"a": 1, "b": 2, "c": 3}),
        ("", None),
        ("# nothing\n", None),
        ("a:\nb: ~", {"a": None, "b": None}),
    ],
)  # fmt: skip
def test_values_are_those_that_kubernetes_reads(text, value):
    """Dates stay text, keys become text, merge keys are merged."""
    assert next(load_all(text), None) == value


def test_anchors_end_with_their_document():
    """Anchors of one document are unknown in the next."""
    with pytest.raises(UnsupportedYamlError):
        list(load_all("a: &x 1\n---\nb: *x\n"))


def test_a_few_lines_cannot_expand_to_billions_of_values():
    """Nested aliases multiply; ordinary repetition is no matter."""
    lines = [
        "a0: &a0 [x]",
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)),
    ]

    with pytest.raises(UnsupportedYamlError):
        list(load_all("\n".join(lines)))
    assert len(next(load_all("a: &a {b: [1, 2]}\nc: [" + "*a, " * 20_000 + "]"))["c"]) == 20_000
