"""Sorting and filtering of nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.cli.top.order import (
    Column,
    Sorting,
    filter_nodes,
    filter_pending,
    parse_selector,
    parse_sorting,
    sort_nodes,
)
from karpenter_core.cli.top.view import NodeRow, NodeState, PendingPod, PendingState, ResourceUse
from karpenter_core.errors import BadInputError


def row(name="node-1", *, cpu=0, price=None, age=None, **fields):
    return NodeRow(**{
        "name": name, "node_claim": "", "pool": "general", "instance_type": "large", "zone": "z1",
        "capacity_type": "spot", "state": NodeState.READY, "reason": "", "age_seconds": age,
        "uses": {"cpu": ResourceUse(cpu, 1000)}, "price_per_hour": price, "pods": (), **fields,
    })  # fmt: skip


ROWS = st.lists(
    st.builds(
        row,
        st.text(st.sampled_from("ab.-019"), min_size=1, max_size=6),
        cpu=st.integers(0, 2000),
        price=st.none() | st.floats(0, 10),
        age=st.none() | st.floats(0, 1e6),
        pool=st.sampled_from(["", "a", "pool-2", "pool-10"]),
        state=st.sampled_from(NodeState),
    ),
    unique_by=lambda made: made.name,
    max_size=20,
)


def test_numbers_in_names_sort_as_numbers():
    rows = [row("node-10"), row("node-9"), row("node"), row("9")]

    assert [each.name for each in sort_nodes(rows, Sorting())] == ["9", "node", "node-9", "node-10"]


@pytest.mark.parametrize("descending", [False, True])
def test_unknown_values_come_last(descending):
    rows = [row("a"), row("b", price=1.0), row("c", price=2.0)]

    ordered = [each.name for each in sort_nodes(rows, Sorting(Column.PRICE, descending))]

    assert ordered == (["c", "b", "a"] if descending else ["b", "c", "a"])


@given(ROWS, st.sampled_from(Column), st.booleans(), st.randoms())
def test_sorting_keeps_every_row_and_does_not_depend_on_the_order(rows, column, descending, rng):
    mixed = list(rows)
    rng.shuffle(mixed)

    ordered = sort_nodes(rows, Sorting(column, descending))

    assert ordered == sort_nodes(mixed, Sorting(column, descending))
    assert sorted(map(id, ordered)) == sorted(map(id, rows))


@given(ROWS, st.booleans())
def test_prices_are_in_order(rows, descending):
    ordered = sort_nodes(rows, Sorting(Column.PRICE, descending))
    known = [each.price_per_hour for each in ordered if each.price_per_hour is not None]

    assert known == sorted(known, reverse=descending)
    assert all(each.price_per_hour is None for each in ordered[len(known) :])


@given(ROWS, st.text(st.sampled_from("ab:pool 0-statezn"), max_size=12))
def test_a_filter_selects_rows_in_their_order(rows, text):
    """A second word only narrows the selection."""
    shown = filter_nodes(rows, text)

    assert [each for each in rows if each in shown] == shown
    assert set(map(id, filter_nodes(rows, f"{text} ready"))) <= set(map(id, shown))
    assert filter_nodes(rows, "  ") == rows


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("pool:batch", ["b"]),
        ("state:notready", ["c"]),
        ("ready", ["a", "b", "c"]),
        ("SPOT zone:z2", ["b"]),
        ("capacity:on-demand", ["c"]),
        ("type:small", []),
        ("other:thing", []),
        ("arm", ["a"]),
    ],
)
def test_words_name_fields_or_anything(text, names):
    rows = [
        row("a", instance_type="arm.large"),
        row("b", pool="batch", zone="z2"),
        row("c", state=NodeState.NOT_READY, capacity_type="on-demand"),
    ]

    assert [each.name for each in filter_nodes(rows, text)] == names


def test_pods_are_found_by_name_state_and_reason():
    pods = [
        PendingPod(key="shop/a", state=PendingState.LAUNCH, message="a node", age_seconds=None),
        PendingPod(key="shop/b", state=PendingState.HELD, message="gates", age_seconds=None),
    ]

    assert filter_pending(pods, "held GATES") == pods[1:]
    assert filter_pending(pods, "shop/") == pods


@pytest.mark.parametrize(
    ("text", "sorting"),
    [
        ("name", Sorting(Column.NAME)),
        ("cpu", Sorting(Column.CPU, True)),
        ("cpu=asc", Sorting(Column.CPU)),
        ("age=dsc", Sorting(Column.AGE, True)),
    ],
)
def test_a_sorting_is_a_column_and_a_direction(text, sorting):
    assert parse_sorting(text) == sorting
    assert parse_sorting(str(sorting)) == sorting


@pytest.mark.parametrize("text", ["", "colour", "cpu=down", "cpu="])
def test_other_sortings_are_refused(text):
    with pytest.raises(BadInputError, match="--sort"):
        parse_sorting(text)


def test_every_column_comes_in_turn():
    sorting = Sorting()
    seen = [sorting := sorting.next() for _ in Column]

    assert {each.column for each in seen} == set(Column)
    assert sorting.reversed().reversed() == sorting


def test_a_selector_is_labels():
    assert parse_selector("a=b, c==d,") == {"a": "b", "c": "d"}
    assert parse_selector("") == {}
    for text in ("a", "=b"):
        with pytest.raises(BadInputError, match="KEY=VALUE"):
            parse_selector(text)
