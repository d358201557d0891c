"""Case 298: how reservations are shared out among the claims of a pass."""

from __future__ import annotations

import pytest

from karpenter_core.scheduling.compiled.reservations import ReservationManager

ONE, TWO, USED_UP = (("id", "r-1"),), (("id", "r-2"),), (("id", "r-0"),)
UNKNOWN = (("id", "r-unknown"),)


@pytest.fixture
def manager():
    """One instance of the first reservation, two of the second, none of the third."""
    return ReservationManager({ONE: 1, TWO: 2, USED_UP: 0})


def test_case_298_remaining_capacity_can_be_reserved(manager):
    assert manager.can_reserve(1, ONE)
    assert not manager.can_reserve(1, USED_UP)


def test_case_298_a_holder_can_keep_its_reservation(manager):
    manager.reserve(1, ONE)
    assert manager.can_reserve(1, ONE)
    assert not manager.can_reserve(2, ONE)


def test_case_298_an_unknown_reservation_is_an_error(manager):
    with pytest.raises(KeyError):
        manager.can_reserve(1, UNKNOWN)
    with pytest.raises(KeyError):
        manager.reserve(1, UNKNOWN)


def test_case_298_reserving_twice_takes_one_instance(manager):
    manager.reserve(1, TWO)
    manager.reserve(1, TWO)
    assert (manager.remaining(TWO), manager.held(1)) == (1, {TWO})


def test_case_298_reserving_beyond_the_capacity_is_an_error(manager):
    manager.reserve(1, ONE)
    with pytest.raises(ValueError, match="nothing is left"):
        manager.reserve(2, ONE)
    assert (manager.remaining(ONE), manager.held(2)) == (0, frozenset())


def test_case_298_releasing_an_unheld_reservation_changes_nothing(manager):
    manager.reserve(1, ONE)
    manager.release(2, ONE)
    manager.release(1, TWO, UNKNOWN)
    assert (manager.remaining(ONE), manager.remaining(TWO), manager.held(1)) == (0, 2, {ONE})


def test_case_298_a_released_reservation_is_available_to_others(manager):
    manager.reserve(1, ONE)
    manager.release(1, ONE)
    manager.reserve(2, ONE)
    assert (manager.held(1), manager.held(2)) == (frozenset(), {ONE})


def test_case_298_reserved_instances_are_conserved(manager):
    steps = [
        ("reserve", 1, (ONE, TWO)),
        ("reserve", 2, (TWO,)),
        ("release", 1, (TWO,)),
        ("reserve", 3, (TWO,)),
        ("release", 1, (ONE,)),
        ("reserve", 2, (ONE,)),
        ("release", 3, (TWO,)),
    ]
    for name, holder, reservations in steps:
        getattr(manager, name)(holder, *reservations)
        for reservation, total in ((ONE, 1), (TWO, 2), (USED_UP, 0)):
            holders = sum(reservation in manager.held(number) for number in (1, 2, 3))
            assert manager.remaining(reservation) + holders == total
    assert [manager.held(number) for number in (1, 2, 3)] == [frozenset(), {ONE, TWO}, frozenset()]
