"""Replacements of consolidation are not replaced again for small savings."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.labels import CREATED_FOR
from tests.disruption.small_clusters import (
    NOW,
    bought,
    box,
    cluster,
    found,
    gone,
    kind,
    runs,
    single,
)

BEST, SIX, THREE = kind("best", 4, 0.40), kind("six", 4, 0.36), kind("three", 4, 0.15)
KEPT = {"karpenter.sh/do-not-disrupt": "true"}
CREATED = NOW - timedelta(minutes=9)


def launched(reason, *, market):
    """A node at 0.40 an hour that was created for this reason, and is in use."""
    node, claim = box("a", BEST, created=CREATED)
    metadata = claim.metadata.model_copy(update={"annotations": {CREATED_FOR: reason}})
    claim = claim.model_copy(update={"metadata": metadata})
    return cluster((node, claim), runs("one", "a", cpu="3"), market=(BEST, *market))


@pytest.mark.parametrize("reason", ["provisioned", "drifted"])
def test_a_node_launched_for_pods_or_drift_is_replaced_for_any_saving(reason):
    """As in the reference."""
    assert bought(single(launched(reason, market=(SIX,)))) == [["six"]]


def test_a_node_launched_by_consolidation_is_kept():
    """Within the hour, whichever method is asked."""
    assert gone(found(launched("underutilized", market=(SIX,)))) == []


def test_after_an_hour_it_is_exchanged_like_any_other():
    """Counted from its creation."""
    builder = launched("underutilized", market=(SIX,))

    assert gone(found(builder, now=CREATED + timedelta(minutes=59, seconds=59))) == []
    assert gone(found(builder, now=CREATED + timedelta(hours=1))) == ["a"]


def test_half_of_its_price_is_a_sufficient_saving():
    """The load may have fallen meanwhile."""
    assert bought(single(launched("underutilized", market=(THREE,)))) == [["three"]]


def test_it_may_be_deleted_without_a_replacement():
    """That saves all of it."""
    node, claim = box("a", BEST, created=CREATED)
    metadata = claim.metadata.model_copy(update={"annotations": {CREATED_FOR: "underutilized"}})
    claim = claim.model_copy(update={"metadata": metadata})
    builder = cluster(
        (node, claim),
        runs("one", "a"),
        box("b"),
        runs("two", "b", annotations=KEPT),
        market=(BEST,),
    )

    assert gone(single(builder)) == ["a"]
