"""Rules of failures: errors have the right class and leave nothing behind."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from karpenter_core.errors import (
    ALL_HOOKS,
    AuthError,
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClaimNotFoundError,
    ThrottledError,
)
from karpenter_core.provider.contract import LaunchedInstance, TerminationStatus
from karpenter_core.provider.host.throttle_pauses import PAUSABLE_HOOKS
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.state.unavailable_offerings import without_unavailable
from karpenter_core.testing.conformance import rule_steps
from karpenter_core.testing.subject import CloudTrouble

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

# ruff: noqa: S101 - this is a test suite

__all__ = [
    "test_pc_080_a_stock_out_names_what_is_sold_out",
    "test_pc_081_a_quota_is_a_wider_shortage",
    "test_pc_082_throttling_has_its_own_error",
    "test_pc_083_a_refusal_of_credentials_names_the_action",
    "test_pc_084_a_lost_reply_launches_nothing_twice",
    "test_pc_085_an_outage_is_not_an_absence",
    "test_pc_086_a_trouble_that_is_over_leaves_nothing",
    "test_pc_087_a_lost_reply_is_repeated_through_refusals",
    "test_pc_088_a_token_in_progress_is_repeated_until_answered",
]


async def _launch_in_trouble(
    world: ProviderWorld, subject: ConformanceSubject, wanted: CloudTrouble
) -> LaunchOutcome:
    request = await world.request(wanted.value, subject.node_class)
    with rule_steps.trouble(subject, world, wanted):
        outcome = await world.launch(request)
    tokens = {i.token for i in (await rule_steps.list_by_provider_id(world, subject)).values()}
    assert request.token not in tokens, f"under {wanted.value} an instance was left behind"
    return outcome


def test_pc_080_a_stock_out_names_what_is_sold_out(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: a stock-out is InsufficientCapacityError with the offerings tried."""

    async def scenario(world: ProviderWorld) -> None:
        outcome = await _launch_in_trouble(world, subject, CloudTrouble.STOCK_OUT)
        assert isinstance(outcome, InsufficientCapacityError), f"a stock-out returned {outcome!r}"
        assert outcome.offerings or outcome.quota_groups, (
            "InsufficientCapacityError without offerings: the core would take whatever the claim "
            "could have become for sold out"
        )
        sold = {
            (it.name, offering.zone, offering.capacity_type)
            for it in await world.catalogue(subject.node_class)
            for offering in it.offerings
        }
        tried = {(k.instance_type, k.zone, k.capacity_type) for k in outcome.offerings}
        assert tried <= sold, f"not in the catalogue: {sorted(tried - sold)}"

    rule_steps.run_rule(subject, tmp_path, scenario, needs_launch=True)


def test_pc_081_a_quota_is_a_wider_shortage(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: a reached quota is InsufficientCapacityError with a scope wider than one offering."""

    async def scenario(world: ProviderWorld) -> None:
        outcome = await _launch_in_trouble(world, subject, CloudTrouble.QUOTA)
        assert isinstance(outcome, InsufficientCapacityError), f"a quota returned {outcome!r}"
        assert outcome.quota_groups or outcome.scope is not ExhaustedScope.OFFERING, (
            "a quota reaches further than one offering: without the scope or quota_groups the core "
            "tries each of the others in vain"
        )
        # The provider may have made them unavailable itself by now.
        types = Catalogue(
            version="",
            instance_types=tuple(
                replace(it, offerings=tuple(replace(each, available=True) for each in it.offerings))
                for it in await world.catalogue(subject.node_class)
            ),
        )
        for group in outcome.quota_groups:
            assert without_unavailable(types, frozenset({group})) is not types, (
                f"{group} matches no offering of the catalogue"
            )

    rule_steps.run_rule(subject, tmp_path, scenario, needs_launch=True)


def test_pc_082_throttling_has_its_own_error(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: throttling is ThrottledError, with the time to wait if the cloud returns one."""

    async def scenario(world: ProviderWorld) -> None:
        outcome = await _launch_in_trouble(world, subject, CloudTrouble.THROTTLING)
        assert isinstance(outcome, ThrottledError), f"throttling returned {outcome!r}"
        wait = outcome.retry_after
        assert wait is None or wait.total_seconds() > 0, "ThrottledError with no time to wait"
        unknown = sorted(outcome.pauses - PAUSABLE_HOOKS - {ALL_HOOKS})
        assert not unknown, f"ThrottledError.pauses names no hooks that can be paused: {unknown}"

    rule_steps.run_rule(subject, tmp_path, scenario, needs_launch=True)


def test_pc_083_a_refusal_of_credentials_names_the_action(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: missing credentials or permissions are AuthError with the action."""

    async def scenario(world: ProviderWorld) -> None:
        outcome = await _launch_in_trouble(world, subject, CloudTrouble.AUTH_FAILURE)
        assert isinstance(outcome, AuthError), f"missing permissions returned {outcome!r}"
        assert outcome.action, "AuthError does not name the action that was refused"

    rule_steps.run_rule(subject, tmp_path, scenario, needs_launch=True)


def test_pc_084_a_lost_reply_launches_nothing_twice(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: a launch whose reply was lost is found by its token."""

    async def scenario(world: ProviderWorld) -> None:
        request = await world.request("lost", subject.node_class)
        with rule_steps.trouble(subject, world, CloudTrouble.LOST_REPLY):
            first = await world.launch(request)
        if not isinstance(first, LaunchedInstance):
            await _expect_listed(world, subject, request)
        second = first if isinstance(first, LaunchedInstance) else await world.launch(request)
        assert isinstance(second, LaunchedInstance), (
            f"the reply of a launch was lost; launched again, the token returned {second!r}"
        )
        tokens = [i.token for i in (await rule_steps.list_by_provider_id(world, subject)).values()]
        assert tokens.count(request.token) == 1, (
            f"the reply of a launch was lost, and the token has {tokens.count(request.token)} "
            "instances now"
        )
        await rule_steps.terminate_until_gone(world, request, second.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario, needs_launch=True)


def test_pc_085_an_outage_is_not_an_absence(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST NOT: an unreachable cloud makes instances seem gone."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await rule_steps.launch_new_claim(world, subject, "there")
        ref = request.node_claim.spec.node_class_ref
        with rule_steps.trouble(subject, world, CloudTrouble.OUTAGE):
            found = await world.providers.fetch(ref, outcome.provider_id)
            assert isinstance(found, CloudProviderError), f"without a cloud it is {found!r}"
            assert not isinstance(found, NodeClaimNotFoundError), (
                "no call reached the cloud, and fetching answers NodeClaimNotFoundError: the "
                "core would forget a running instance"
            )
            answer = await world.providers.terminate(ref, outcome.provider_id)
            assert answer is not TerminationStatus.GONE, (
                "no call reached the cloud, and terminating answers GONE"
            )
            try:
                listing = await world.providers.list_instances(subject.name)
            except CloudProviderError:
                pass
            else:
                assert not listing.complete, (
                    "no call reached the cloud, and a listing without the instance is complete"
                )
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_086_a_trouble_that_is_over_leaves_nothing(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: a refused launch succeeds with the same token when the cause is gone."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_supported(subject, CloudTrouble.THROTTLING)
        request = await world.request("later", subject.node_class)
        with rule_steps.trouble(subject, world, CloudTrouble.THROTTLING):
            await world.launch(request)
        outcome = await rule_steps.launch(world, request)
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_087_a_lost_reply_is_repeated_through_refusals(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: a launch whose reply was lost is repeated with its token until the cloud answers it."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_supported(subject, CloudTrouble.THROTTLING)
        await rule_steps.launch_new_claim(world, subject, "before")
        request = _created_now(world, await world.request("lost", subject.node_class))
        with ExitStack() as troubles:
            troubles.enter_context(rule_steps.trouble(subject, world, CloudTrouble.LOST_REPLY))
            troubles.enter_context(rule_steps.trouble(subject, world, CloudTrouble.THROTTLING))
            await world.launch(request)
        with rule_steps.trouble(subject, world, CloudTrouble.THROTTLING):
            await world.launch(request)
        await _answered_once(
            world, subject, request, "the reply of a launch was lost, and later ones were throttled"
        )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_088_a_token_in_progress_is_repeated_until_answered(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: a request whose token is in progress is repeated; no other token launches."""
    if not subject.has_tokens:
        pytest.skip("does not apply: the cloud has no tokens (ConformanceSubject.has_tokens)")

    async def scenario(world: ProviderWorld) -> None:
        await rule_steps.launch_new_claim(world, subject, "before")
        request = _created_now(world, await world.request("in-progress", subject.node_class))
        with rule_steps.trouble(subject, world, CloudTrouble.TOKEN_IN_PROGRESS):
            outcome = await world.launch(request)
        assert not isinstance(outcome, _NOTHING_WAS_DONE), (
            f"a token that is still in progress returned {outcome!r}, which says that nothing was "
            "launched"
        )
        await _answered_once(world, subject, request, "the token of a launch was in progress")

    rule_steps.run_rule(subject, tmp_path, scenario)


async def _expect_listed(
    world: ProviderWorld, subject: ConformanceSubject, request: LaunchRequest
) -> None:
    """Expect the instance of a launch without an answer in the listing, before it is launched again."""
    deadline = world.clock.monotonic() + rule_steps.GONE_WITHIN_SECONDS
    tokens: set[str] = set()
    while request.token not in tokens and world.clock.monotonic() < deadline:
        await asyncio.sleep(_PAUSE_SECONDS)
        listing = await rule_steps.current_listing(world, subject)
        tokens = {each.token for each in listing.instances}
    assert request.token in tokens, (
        "the reply of a launch was lost, and its instance is not listed with its token: if the NodeClaim is "
        "deleted now, it is never found; give it its tags, or a name that says the same, in the call that "
        "creates it"
    )


_PAUSE_SECONDS = 0.02
_LAUNCHED = 2
"""Instances of the claim, and of one before it."""
_NOTHING_WAS_DONE = (AuthError, InsufficientCapacityError, LaunchFailedError, ThrottledError)


def _created_now(world: ProviderWorld, request: LaunchRequest) -> LaunchRequest:
    """Return the request of a claim that was created now: no other process can have launched it."""
    claim = request.node_claim
    metadata = claim.metadata.model_copy(update={"creation_timestamp": world.clock.now()})
    return replace(request, node_claim=claim.model_copy(update={"metadata": metadata}))


async def _answered_once(
    world: ProviderWorld, subject: ConformanceSubject, request: LaunchRequest, what: str
) -> None:
    """Launch for the claim again, with other types first; expect one instance for it."""
    others = replace(request, instance_types=tuple(reversed(request.instance_types)))
    outcome = await rule_steps.launch_after_pause(world, others)
    assert isinstance(outcome, LaunchedInstance), (
        f"{what}; launched again, the token returned {outcome!r}"
    )
    instances = await rule_steps.list_by_provider_id(world, subject)
    assert len(instances) >= _LAUNCHED, (
        f"{what}; of the instances of two claims {len(instances)} are listed: {sorted(instances)}"
    )
    assert len(instances) == _LAUNCHED, (
        f"{what}; for one claim there are {len(instances) - 1} instances now: {sorted(instances)}"
    )
    await rule_steps.terminate_until_gone(world, request, outcome.provider_id)
