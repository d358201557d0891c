"""Tables behave like dictionaries, and their snapshots never change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.state import tables
from karpenter_core.state.tables import SnapshotTable
from tests.properties import with_examples

writes = st.lists(
    st.tuples(st.sampled_from(("put", "drop", "freeze")), st.integers(0, 12), st.integers(0, 99)),
    max_size=60,
)


@pytest.fixture(autouse=True, params=[(0, 1), (4, 1), (0, 32), (1000, 32)])
def small(request, monkeypatch):
    """Never, sometimes, soon and always copied whole."""
    small, share = request.param
    monkeypatch.setattr(tables, "_SMALL", small)
    monkeypatch.setattr(tables, "_SHARE", share)


@given(writes)
@with_examples(200)
def test_a_table_is_a_dictionary_and_views_are_photographs(steps):
    table, model, photographs = SnapshotTable[int, int](), {}, []
    for verb, key, value in steps:
        match verb:
            case "put":
                table.put(key, value)
                model[key] = value
            case "drop":
                assert table.drop(key) == model.pop(key, None)
            case _:
                photographs.append((table.freeze(), dict(model)))
        assert (len(table), table.get(key)) == (len(model), model.get(key))
        assert (key in table) is (key in model)
    for view, before in photographs:
        assert dict(view) == before
        assert dict(view.items()) == before
        assert sorted(view.values()) == sorted(before.values())
        assert (len(view), set(view)) == (len(before), set(before))
        assert all((key in view) is (key in before) for key in range(13))
        assert {key: view.get(key) for key in range(13)} == {k: before.get(k) for k in range(13)}


def test_an_untouched_table_is_handed_out_again():
    table = SnapshotTable[str, int]()
    table.put("a", 1)
    view = table.freeze()
    table.drop("b")
    assert table.freeze() is view


def test_a_view_cannot_be_written_to():
    table = SnapshotTable[str, int]()
    table.put("a", 1)
    table.freeze()
    table.put("b", 2)
    with pytest.raises(TypeError):
        table.freeze()["c"] = 3


def test_a_missing_key_is_an_error_in_a_view():
    table = SnapshotTable[str, int]()
    for key in "abcde":
        table.put(key, ord(key))
    before = table.freeze()
    table.drop("a")
    table.put("b", 0)
    after = table.freeze()
    assert [after[key] for key in "bcde"] == [0, *map(ord, "cde")]
    assert [before[key] for key in "abcde"] == [*map(ord, "abcde")]
    for key in ("a", "z"):
        with pytest.raises(KeyError):
            after[key]


def test_the_size_of_a_copy_does_not_follow_the_size_of_the_table(monkeypatch):
    """Ten thousand entries, one write between two snapshots: what is copied stays small."""
    monkeypatch.setattr(tables, "_SMALL", 256)
    monkeypatch.setattr(tables, "_SHARE", 32)
    table = SnapshotTable[int, int]()
    for key in range(10_000):
        table.put(key, key)
    base = table.freeze()
    for key in range(300):
        table.put(key, -key)
        view = table.freeze()
        assert len(view) == 10_000
        assert len(view._above) <= 256 + 10_000 // 32
    assert base[5] == 5
