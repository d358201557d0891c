"""Values are computed once for each object, and what has changed is told by its place."""

from __future__ import annotations

import pytest

from karpenter_core.scheduling.identity_memo import IdentityMemo


class Counted:
    """Computes values of objects and counts how often."""

    def __init__(self):
        self.memo, self.asked = IdentityMemo(), []

    def values(self, *items, **around):
        self.asked.clear()
        return self.memo.values(items, self._compute, **around)

    def _compute(self, item):
        self.asked.append(item)
        return f"value of {item}"


A, B, C, D = (["a"], ["b"], ["c"], ["d"])
"""Objects that are equal to no other, and told apart by what they are."""


@pytest.fixture
def counted():
    counted = Counted()
    counted.values(A, B, C)
    assert counted.memo.changed is None
    return counted


def test_the_same_objects_have_the_same_tuple(counted):
    before = counted.values(A, B, C)
    assert counted.values(A, B, C) is before
    assert (counted.asked, list(counted.memo.changed)) == ([], [])


def test_an_object_in_the_place_of_another_is_computed_alone(counted):
    assert counted.values(A, D, C) == tuple(f"value of {each}" for each in (A, D, C))
    assert (counted.asked, list(counted.memo.changed)) == ([D], [1])


@pytest.mark.parametrize("items", [(B, A, C, D), (C, D), (D, A, B, C)])
def test_objects_are_known_at_any_place_when_their_number_changes(counted, items):
    assert counted.values(*items) == tuple(f"value of {each}" for each in items)
    assert counted.asked == [each for each in items if each is D]
    assert counted.memo.changed is None


def test_all_is_computed_again_when_what_it_is_computed_from_differs(counted):
    around = [1]
    counted.values(A, same=(around,))
    assert counted.asked == [A]
    counted.values(A, same=(around,))
    assert counted.asked == []
    counted.values(A, same=([1],))
    assert (counted.asked, counted.memo.changed) == ([A], None)
    counted.values(A, same=(around,), equal=2)
    assert counted.asked == [A]
    counted.values(A, same=(around,), equal=2)
    assert counted.asked == []
