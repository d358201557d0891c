"""Savings floors set the least saving of a consolidation."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import SAVINGS_FLOOR
from karpenter_core.api.savings import SavingsFloor, savings_floor_error
from karpenter_core.disruption.method import DisruptionOptions
from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.nodepool.validation import validate_node_pool
from karpenter_core.scheduling.problem import SolveOptions
from tests.disruption.small_clusters import (
    EIGHT,
    FOUR,
    bought,
    box,
    cluster,
    gone,
    kind,
    messages,
    multi,
    pool,
    runs,
    single,
)


def floor(text):
    return pool(notes={SAVINGS_FLOOR: text})


def oversized(text):
    """A node at 0.8 an hour for a pod that a node at 0.4 would hold."""
    return cluster(floor(text), box("web", EIGHT), runs("a", "web", cpu="3"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10%", SavingsFloor(share=0.1)),
        (" 0% ", SavingsFloor()),
        ("0.05", SavingsFloor(amount_per_hour=0.05)),
        ("100%", SavingsFloor(share=1.0)),
    ],
)
def test_shares_and_amounts_are_read(text, value):
    assert SavingsFloor.parse(text) == value


@pytest.mark.parametrize("text", ["", "%", "-1", "101%", "-5%", "much", "inf", "nan", "10 %%"])
def test_invalid_floors_are_refused_and_reported(text):
    with pytest.raises(BadInputError, match="savings-floor"):
        SavingsFloor.parse(text)
    assert savings_floor_error(floor(text))
    findings = validate_node_pool(floor(text), rules=None)
    assert findings.errors == ()
    (warning,) = findings.warnings
    assert f'"{text}"' in warning


@pytest.mark.parametrize("annotations", [None, {SAVINGS_FLOOR: "5%"}])
def test_readable_floors_cause_no_warning(annotations):
    assert validate_node_pool(pool(notes=annotations), rules=None).warnings == ()


@pytest.mark.parametrize(
    ("text", "goes"),
    [
        ("50%", True),
        ("51%", False),
        ("0.4", True),
        ("0.41", False),
        ("0", True),
        ("rubbish", False),
    ],
)
def test_a_replacement_saves_the_floor_or_is_not_made(text, goes):
    """Exactly the floor is enough; a floor that cannot be read allows no replacement."""
    outcome = single(oversized(text))
    assert bool(outcome.commands) is goes
    if goes:
        assert bought(outcome) == [["four"]]
    else:
        (message,) = messages(outcome)
        assert "savings floor: $" in message


def test_a_floor_is_written_in_the_reporting_currency():
    yen = DisruptionOptions(solve=SolveOptions(currency="JPY", exchange_rates={"USD": 100.0}))
    (message,) = messages(single(oversized("51%"), options=yen))
    assert "(savings floor: 40.8000 JPY per hour)" in message


def test_the_floor_holds_at_the_highest_possible_launch_price():
    """A type that could come out dearer than the floor allows is not among the options."""
    market = (kind("small", 4, 0.2), kind("medium", 4, 0.5), EIGHT)
    builder = cluster(floor("50%"), box("web", EIGHT), runs("a", "web", cpu="3"), market=market)
    assert bought(single(builder)) == [["small"]]


@pytest.mark.parametrize(("text", "goes"), [("100%", ["idle"]), ("0.4", ["idle"]), ("0.5", [])])
def test_deleting_saves_all_of_the_price(text, goes):
    """A share never stands against a deletion, an amount does."""
    builder = cluster(
        floor(text),
        box("idle", FOUR),
        box("rest", FOUR),
        runs("a", "idle"),
        runs("b", "rest", cpu="2"),
    )
    assert gone(single(builder)) == goes


def test_several_nodes_reach_an_amount_together():
    """Each of them alone would save too little."""
    objects = [o for name in ("a", "b") for o in (box(name, FOUR), runs(f"{name}-pod", name))]
    builder = cluster(floor("0.6"), *objects, box("rest", FOUR), runs("c", "rest", cpu="2"))
    assert gone(single(builder)) == []
    assert sorted(gone(multi(builder))) == ["a", "b"]


def test_floors_of_several_pools_add_up():
    builder = cluster(
        pool("cheap"),
        pool("careful", notes={SAVINGS_FLOOR: "0.5"}),
        box("a", FOUR, pool="cheap"),
        box("b", FOUR, pool="careful"),
        runs("a-pod", "a"),
        runs("b-pod", "b"),
        box("rest", FOUR, pool="cheap"),
        runs("c", "rest", cpu="2"),
    )
    assert sorted(gone(multi(builder))) == ["a", "b"], "0.8 saved, of which 0.5 are asked for"
    assert gone(single(builder)) == ["a"], "b alone would save 0.4"
