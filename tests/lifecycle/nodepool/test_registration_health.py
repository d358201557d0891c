"""The condition NodeRegistrationHealthy (acceptance cases 39, 60, 144, 145)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.nodepool import NODE_REGISTRATION_HEALTHY
from karpenter_core.lifecycle.nodepool.registration_health import with_registration_health
from karpenter_core.testing import builders
from karpenter_provider_kwok.api import KWOKNodeClass

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def node_class(generation: int = 1) -> KWOKNodeClass:
    return KWOKNodeClass.model_validate({"metadata": {"name": "default", "generation": generation}})


def settled():
    """A pool whose condition has been set to Unknown for this generation."""
    return with_registration_health(
        builders.node_pool("web"), node_class(), None, now=NOW, failure=("", "")
    ).pool


def status(pool) -> str:
    condition = find_condition(pool.status.conditions, NODE_REGISTRATION_HEALTHY)
    return "" if condition is None else condition.status


def test_a_new_pool_is_unknown_and_its_account_is_empty():
    """And remembers which generation of the NodeClass it saw."""
    step = with_registration_health(
        builders.node_pool("web"), node_class(7), (True,), now=NOW, failure=("", "")
    )

    assert status(step.pool) == "Unknown"
    assert step.pool.status.node_class_observed_generation == 7
    assert step.reset is not None
    assert step.reset.results == ()


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ((True,), "True"),
        ((False,), "Unknown"),
        ((False, False), "False"),
        ((False, False, True), "False"),
        ((False, True), "True"),
        ((True, True, False), "True"),
        ((True, True, False, True), "True"),
        ((True, False, True, False), "False"),
    ],
)
def test_two_failures_among_the_last_make_a_pool_unhealthy(results, expected):
    """A success after two failures changes nothing yet."""
    assert expected == status(
        with_registration_health(settled(), node_class(), results, now=NOW, failure=("", "")).pool
    )


def test_another_generation_of_the_nodeclass_restarts_the_record():
    """The old results were about another NodeClass."""
    healthy = with_registration_health(
        settled(), node_class(), (True,), now=NOW, failure=("", "")
    ).pool

    step = with_registration_health(healthy, node_class(2), (True,), now=NOW, failure=("", ""))

    assert status(step.pool) == "Unknown"
    assert step.reset is not None


@pytest.mark.parametrize(
    ("results", "remembered"), [((True,), (True,)), ((False,) * 2, (False,) * 2)]
)
def test_a_new_process_takes_the_account_from_the_condition(results, remembered):
    """Nothing is remembered across a restart but what the condition says."""
    before = with_registration_health(
        settled(), node_class(), results, now=NOW, failure=("", "")
    ).pool

    step = with_registration_health(before, node_class(), None, now=NOW, failure=("", ""))

    assert status(step.pool) == status(before)
    assert step.reset is not None
    assert remembered == step.reset.results


def test_another_generation_of_the_pool_restarts_the_record():
    """Case 144: what was wrong with the old template may be mended."""
    healthy = with_registration_health(
        settled(), node_class(), (True,), now=NOW, failure=("", "")
    ).pool
    edited = healthy.model_copy(
        update={"metadata": healthy.metadata.model_copy(update={"generation": 2})}
    )

    step = with_registration_health(edited, node_class(), (True,), now=NOW, failure=("", ""))

    assert status(step.pool) == "Unknown"
    assert step.reset is not None


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (("", ""), ("RegistrationFailed", "Failed to register node")),
        (("NoCapacity", "sold out"), ("NoCapacity", "sold out")),
    ],
)
def test_the_condition_says_why_a_launch_failed(failure, expected):
    """And keeps saying what it said first, as long as it is False."""
    step = with_registration_health(
        settled(), node_class(), (False, False), now=NOW, failure=failure
    )

    again = with_registration_health(
        step.pool, node_class(), (False, False, False), now=NOW, failure=("Other", "later")
    )

    condition = find_condition(again.pool.status.conditions, NODE_REGISTRATION_HEALTHY)
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("False", *expected)
