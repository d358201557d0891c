"""Tests that a protected instance holds back no other of its batch."""

from __future__ import annotations

import pytest

from karpenter_core.errors import AuthError, TerminationRefusedError
from karpenter_core.provider.contract import TerminationStatus

DELETE = "DeleteInstances"


def names(number):
    return [f"n{each}" for each in range(number)]


def living(world):
    region = world.cloud.account.region
    return {f"{region}.{each.id}" for each in world.cloud.living()}


@pytest.fixture
def hundred(world):
    """As many as one call deletes, of two groups; their provider IDs."""
    return [*world.launch(*names(40)), *world.launch(*(f"m{each}" for each in range(60)))]


def test_instances_that_run_or_are_paid_for_a_term_are_deleted_too(world):
    """ECS refuses either unless it is asked for: pods have been moved away, nothing has to stop first."""
    world.instances.terminate(world.launch("a"))

    (sent,) = (call.parameters for call in world.cloud.calls.of(DELETE))
    flags = [sent[flag] for flag in ("Force", "ForceStop", "TerminateSubscription")]
    assert [str(flag).lower() for flag in flags] == ["true"] * 3


def test_a_protected_instance_does_not_keep_its_batch(world, hundred):
    kept = hundred[17]
    world.cloud.protect(kept)

    outcomes = dict(zip(hundred, world.instances.terminate(hundred), strict=True))

    assert living(world) == {kept}
    refused = outcomes.pop(kept)
    assert isinstance(refused, TerminationRefusedError)
    assert kept.rpartition(".")[2] in str(refused)
    assert "deletion protection" in str(refused)
    assert set(outcomes.values()) == {TerminationStatus.STARTED}
    assert world.cloud.calls.count(DELETE) == 1


def test_a_protected_instance_ends_once_its_protection_is_lifted(world):
    (kept,) = world.launch("a")
    world.cloud.protect(kept)
    (refused,) = world.instances.terminate([kept])
    world.cloud.protect(kept, protected=False)

    assert isinstance(refused, TerminationRefusedError)
    assert world.instances.terminate([kept]) == [TerminationStatus.STARTED]
    assert not living(world)


def test_an_instance_whose_tags_forbid_it_is_isolated_by_few_calls(world, hundred):
    """Forbidden.RAM does not say which instance of the batch the policy is about."""
    kept = {hundred[3], hundred[71]}
    for each in kept:
        world.cloud.deny_about(DELETE, each)

    outcomes = dict(zip(hundred, world.instances.terminate(hundred), strict=True))

    assert living(world) == kept
    assert {each for each, it in outcomes.items() if it is not TerminationStatus.STARTED} == kept
    for each in kept:
        assert isinstance(outcomes[each], TerminationRefusedError)
        assert each.rpartition(".")[2] in str(outcomes[each])
        assert "Forbidden.RAM" in str(outcomes[each])
    assert world.cloud.calls.count(DELETE) <= 30


def test_a_refused_deletion_is_not_repeated_at_once(world, hundred):
    """Its claim is reconciled every few seconds."""
    kept = hundred[3]
    denial = world.cloud.deny_about(DELETE, kept)
    world.instances.terminate(hundred)
    calls = world.cloud.calls.count(DELETE)

    (again,) = world.instances.terminate([kept])
    assert isinstance(again, TerminationRefusedError)
    assert world.cloud.calls.count(DELETE) == calls

    denial.end()
    world.clock.forward(61)
    assert world.instances.terminate([kept]) == [TerminationStatus.STARTED]
    assert not living(world)


def test_a_missing_permission_for_all_is_said_as_that_and_costs_few_calls(world, hundred):
    world.cloud.deny(DELETE)

    outcomes = world.instances.terminate(hundred)

    assert {type(outcome) for outcome in outcomes} == {AuthError}
    assert len(living(world)) == 100
    assert world.cloud.calls.count(DELETE) <= 20


def test_an_instance_protected_since_it_was_described_holds_back_no_other(world, hundred):
    """ECS refuses the whole call without a word on which instance is meant."""
    kept = hundred[50]
    world.cloud.fail(
        DELETE,
        code="InvalidOperation.DeletionProtection",
        status=403,
        times=None,
        where=lambda call: kept.rpartition(".")[2] in call["InstanceId"],
    )

    outcomes = dict(zip(hundred, world.instances.terminate(hundred), strict=True))

    assert living(world) == {kept}
    assert isinstance(outcomes[kept], TerminationRefusedError)


def test_many_that_may_not_be_deleted_hold_back_no_other_for_long(world, hundred):
    """So many that halving gives up: those that were found are left out of the next call."""
    kept = set(hundred[::5])
    for each in kept:
        world.cloud.deny_about(DELETE, each)

    for _ in range(10):
        world.instances.terminate(sorted(living(world)))
        world.clock.forward(5)

    assert living(world) == kept
