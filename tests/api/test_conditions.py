"""The condition set: root, dependents, transition times, generations, order, clearing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionRules,
    DependentConditionError,
    find_condition,
    is_false,
    is_true,
    is_unknown,
)
from karpenter_core.api.nodeclaim import NODE_CLAIM_CONDITIONS
from karpenter_core.api.nodepool import NODE_POOL_CONDITIONS
from tests.properties import with_examples

BORN = datetime(2026, 1, 1, 8, 0, 0, tzinfo=UTC)
RULES = ConditionRules(dependents=("Launched", "Registered", "Initialized"))


def at(seconds: int) -> datetime:
    return BORN + timedelta(seconds=seconds)


def fresh(generation: int = 1) -> tuple[Condition, ...]:
    return RULES.initialise((), since=BORN, generation=generation)


def set_(conditions, condition_type, status, *, seconds, reason="Because", generation=1, **more):
    return RULES.set(
        conditions,
        type=condition_type,
        status=status,
        reason=reason,
        now=at(seconds),
        generation=generation,
        **more,
    )


def types(conditions: tuple[Condition, ...]) -> list[str]:
    return [item.type for item in conditions]


def test_first_touch_makes_root_and_dependents_unknown_since_creation():
    conditions = fresh()

    assert types(conditions) == ["Launched", "Registered", "Initialized", "Ready"]
    for item in conditions[:3]:
        assert item == Condition(
            type=item.type,
            status=UNKNOWN,
            reason="AwaitingReconciliation",
            message="object is awaiting reconciliation",
            last_transition_time=BORN,
            observed_generation=1,
        )
    assert conditions[3] == Condition(
        type="Ready",
        status=UNKNOWN,
        reason="ReconcilingDependents",
        message="Launched=Unknown, Registered=Unknown, Initialized=Unknown",
        last_transition_time=BORN,
        observed_generation=1,
    )


def test_initialising_twice_changes_nothing():
    conditions = fresh()

    assert RULES.initialise(conditions, since=BORN, generation=1) is conditions


def test_an_independent_condition_starts_now():
    conditions = set_(fresh(), "Drifted", TRUE, seconds=7)

    drifted = find_condition(conditions, "Drifted")
    assert drifted is not None
    assert drifted.last_transition_time == at(7)


def test_an_independent_condition_does_not_move_the_root():
    before = find_condition(fresh(), "Ready")

    assert find_condition(set_(fresh(), "Drifted", TRUE, seconds=7), "Ready") == before


def test_set_true_takes_the_type_as_reason():
    conditions = RULES.set_true(fresh(), type="Launched", now=at(1), generation=1)

    launched = find_condition(conditions, "Launched")
    assert launched is not None
    assert (launched.status, launched.reason, launched.message) == (TRUE, "Launched", "")


def test_an_unchanged_condition_is_the_same_tuple():
    conditions = set_(fresh(), "Launched", TRUE, seconds=1)

    assert set_(conditions, "Launched", TRUE, seconds=9) is conditions


def test_a_new_reason_keeps_the_transition_time():
    conditions = set_(fresh(), "Registered", UNKNOWN, seconds=5, reason="NodeNotFound")

    registered = find_condition(conditions, "Registered")
    assert registered is not None
    assert registered.reason == "NodeNotFound"
    assert registered.last_transition_time == BORN


def test_a_new_status_moves_the_transition_time():
    conditions = set_(fresh(), "Registered", FALSE, seconds=5)

    registered = find_condition(conditions, "Registered")
    assert registered is not None
    assert registered.last_transition_time == at(5)


@pytest.mark.parametrize(
    ("settings", "status", "reason", "message"),
    [
        (
            [("Launched", TRUE), ("Registered", TRUE), ("Initialized", TRUE)],
            TRUE,
            "Ready",
            "",
        ),
        (
            [("Launched", TRUE)],
            UNKNOWN,
            "ReconcilingDependents",
            "Registered=Unknown, Initialized=Unknown",
        ),
        (
            [("Launched", TRUE), ("Initialized", FALSE)],
            FALSE,
            "UnhealthyDependents",
            "Initialized=False, Registered=Unknown",
        ),
        (
            [("Launched", FALSE), ("Registered", FALSE), ("Initialized", FALSE)],
            FALSE,
            "UnhealthyDependents",
            "Initialized=False, Registered=False, Launched=False",
        ),
    ],
)
def test_the_root_sums_up_its_dependents(settings, status, reason, message):
    conditions = fresh()
    for index, (condition_type, value) in enumerate(settings, start=1):
        conditions = set_(conditions, condition_type, value, seconds=index)

    root = find_condition(conditions, "Ready")
    assert root is not None
    assert (root.status, root.reason, root.message) == (status, reason, message)


def test_a_dependent_of_an_older_generation_is_unhealthy():
    """True for an older spec counts as not known; False for an older spec as not known either."""
    conditions = fresh()
    for condition_type in RULES.dependents:
        conditions = set_(conditions, condition_type, TRUE, seconds=1)
    conditions = set_(conditions, "Launched", TRUE, seconds=2, generation=2)

    root = find_condition(conditions, "Ready")
    assert root is not None
    assert (root.status, root.reason) == (UNKNOWN, "ReconcilingDependents")
    assert root.message == "Registered=True, Initialized=True"
    assert root.observed_generation == 2

    stale = set_(fresh(), "Registered", FALSE, seconds=1)
    root = find_condition(set_(stale, "Launched", TRUE, seconds=2, generation=2), "Ready")
    assert root is not None
    assert root.status == UNKNOWN


def test_a_deleting_object_bumps_every_generation():
    conditions = fresh()
    for condition_type in RULES.dependents:
        conditions = set_(conditions, condition_type, TRUE, seconds=1)
    conditions = set_(
        conditions, "InstanceTerminating", TRUE, seconds=2, generation=2, deleting=True
    )

    assert {item.observed_generation for item in conditions} == {2}
    assert is_true(conditions, "Ready")


def test_stored_order_is_by_transition_time_with_the_root_last():
    conditions = set_(fresh(), "Consolidatable", TRUE, seconds=4)
    conditions = set_(conditions, "Launched", TRUE, seconds=5)
    conditions = set_(conditions, "Drifted", TRUE, seconds=3)

    assert types(conditions) == [
        "Registered",
        "Initialized",
        "Drifted",
        "Consolidatable",
        "Launched",
        "Ready",
    ]


def test_clearing_removes_and_sorts_by_type():
    conditions = set_(fresh(), "Drifted", TRUE, seconds=1)
    conditions = set_(conditions, "Consolidatable", TRUE, seconds=2)

    assert types(RULES.clear(conditions, "Drifted")) == [
        "Consolidatable",
        "Initialized",
        "Launched",
        "Ready",
        "Registered",
    ]


def test_clearing_an_absent_condition_changes_nothing():
    conditions = fresh()

    assert RULES.clear(conditions, "Drifted") is conditions


@pytest.mark.parametrize("condition_type", ["Ready", "Launched"])
def test_root_and_dependents_cannot_be_cleared(condition_type):
    with pytest.raises(DependentConditionError, match=condition_type):
        RULES.clear(fresh(), condition_type)


def test_without_dependents_the_root_becomes_true_with_the_first_set():
    rules = ConditionRules()
    conditions = rules.initialise((), since=BORN, generation=1)
    assert is_unknown(conditions, "Ready")

    conditions = rules.set_true(conditions, type="Discovered", now=at(1), generation=1)

    assert is_true(conditions, "Ready", "Discovered")


def test_absent_is_neither_true_nor_false_but_unknown():
    assert not is_true((), "Ready")
    assert not is_false((), "Ready")
    assert is_unknown((), "Ready")


def test_ready_conditions_of_our_kinds_have_the_dependents_of_the_api():
    assert (
        ConditionRules(root="Ready", dependents=("Launched", "Registered", "Initialized"))
        == NODE_CLAIM_CONDITIONS
    )
    assert (
        ConditionRules(root="Ready", dependents=("ValidationSucceeded", "NodeClassReady"))
        == NODE_POOL_CONDITIONS
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from([*RULES.dependents, "Drifted", "Drained"]),
        st.sampled_from([TRUE, FALSE, UNKNOWN]),
        st.integers(min_value=1, max_value=3),
    ),
    max_size=12,
)


@given(STEPS)
@with_examples(100)
def test_any_sequence_keeps_types_unique_and_the_root_consistent(steps):
    conditions = fresh()
    generation = 1
    for index, (condition_type, status, observed_generation) in enumerate(steps):
        generation = max(generation, observed_generation)
        conditions = set_(conditions, condition_type, status, seconds=index, generation=generation)

    assert len(set(types(conditions))) == len(conditions)
    assert types(conditions)[-1] == "Ready"
    healthy = all(
        item.status == TRUE and item.observed_generation == generation
        for item in conditions
        if item.type in RULES.dependents
    )
    assert is_true(conditions, "Ready") == healthy


def test_a_message_that_the_api_server_would_refuse_is_cut():
    """A condition with the long answer of a cloud would never be written otherwise."""
    conditions = set_(fresh(), "Launched", FALSE, seconds=1, message="x" * 100_000)

    message = find_condition(conditions, "Launched").message
    assert len(message) == 32_768
    assert message.endswith("x...")
    again = set_(conditions, "Launched", FALSE, seconds=5, message="x" * 100_000)
    assert again == conditions
