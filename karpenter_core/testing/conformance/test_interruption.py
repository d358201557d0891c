"""Rules of interruptions: announced until acknowledged, for their claim."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from karpenter_core.errors import InsufficientCapacityError
from karpenter_core.provider.contract import Interruption, InterruptionKind, LaunchedInstance
from karpenter_core.testing.conformance import rule_steps
from karpenter_core.testing.subject import CloudTrouble

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from karpenter_core.api.nodeclaim import NodeClassRef
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

# ruff: noqa: S101 - this is a test suite

__all__ = [
    "test_pc_060_an_announcement_comes_until_it_is_acknowledged",
    "test_pc_061_an_announcement_says_what_befalls_whom",
    "test_pc_062_acknowledging_may_be_repeated",
    "test_pc_063_reading_a_node_asks_nobody",
    "test_pc_064_a_launch_that_fails_late_is_announced",
]

_POLL: Final = "karpenter_poll_interruptions"
_READ: Final = "karpenter_read_interruptions"
_ANNOUNCED_WITHIN_SECONDS: Final = 10.0
_ANNOUNCED_AGAIN_WITHIN_SECONDS: Final = 2.0


async def _announced(
    world: ProviderWorld,
    subject: ConformanceSubject,
    provider_id: str,
    ref: NodeClassRef | None = None,
) -> Sequence[Interruption]:
    """Wait until an interruption of an instance is announced; `ref` is that of `_found`."""
    found = await _awaited(world, subject, provider_id, ref, within=_ANNOUNCED_WITHIN_SECONDS)
    assert found, f"{_POLL if ref is None else _READ} never names {provider_id}"
    return found


async def _awaited(
    world: ProviderWorld,
    subject: ConformanceSubject,
    provider_id: str,
    ref: NodeClassRef | None,
    *,
    within: float,
) -> Sequence[Interruption]:
    deadline = world.clock.monotonic() + within
    while world.clock.monotonic() < deadline:
        found = await _found(world, subject, provider_id, ref)
        await world.settle()
        about = [one for one in found if one.provider_id == provider_id]
        if about:
            return about
        await asyncio.sleep(0.02)
    return ()


async def _found(
    world: ProviderWorld,
    subject: ConformanceSubject,
    provider_id: str,
    ref: NodeClassRef | None,
) -> Sequence[Interruption]:
    """Poll; with the NodeClass of an instance, read its Node as it is now instead."""
    if ref is None:
        return await world.providers.poll_interruptions(subject.name)
    node = rule_steps.show_node(world, subject, provider_id)
    return () if node is None else await world.providers.read_interruptions(ref, node)


def _interruption_ref(subject: ConformanceSubject, request: LaunchRequest) -> NodeClassRef | None:
    """Return the NodeClass of a claim whose interruptions are read from its Node; None: polled."""
    return request.node_claim.spec.node_class_ref if subject.interrupts_nodes else None


def _can_interrupt(world: ProviderWorld, subject: ConformanceSubject) -> None:
    rule_steps.skip_unless_implemented(world, subject, _READ if subject.interrupts_nodes else _POLL)
    if subject.interrupt is None:
        pytest.skip(
            "not shown: the subject cannot announce interruptions (ConformanceSubject.interrupt)"
        )


def test_pc_060_an_announcement_comes_until_it_is_acknowledged(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: an interruption is returned under the same id until it is acknowledged."""

    async def scenario(world: ProviderWorld) -> None:
        _can_interrupt(world, subject)
        assert subject.interrupt is not None
        request, outcome = await rule_steps.launch_new_claim(world, subject, "announced")
        subject.interrupt(world.plugins[subject.name], outcome.provider_id)
        ref = _interruption_ref(subject, request)
        first = {one.id for one in await _announced(world, subject, outcome.provider_id, ref)}
        again = await _awaited(
            world, subject, outcome.provider_id, ref, within=_ANNOUNCED_AGAIN_WITHIN_SECONDS
        )
        second = {one.id for one in again}
        assert first <= second, (
            f"{sorted(first)} was not acknowledged, and a second poll returned {sorted(second)}: "
            "when the core dies in between, nobody drains the node"
        )
        if ref is not None:  # the condition stays until the Node is gone
            await rule_steps.terminate_until_gone(world, request, outcome.provider_id)
            return
        await world.providers.acknowledge_interruptions(subject.name, sorted(first | second))
        left = await world.providers.poll_interruptions(subject.name)
        kept = {one.id for one in left} & (first | second)
        assert not kept, f"{sorted(kept)} is announced although it was acknowledged"
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_061_an_announcement_says_what_befalls_whom(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: an interruption has a kind, the provider ID of its launch, and an aware deadline."""

    async def scenario(world: ProviderWorld) -> None:
        _can_interrupt(world, subject)
        assert subject.interrupt is not None
        request, outcome = await rule_steps.launch_new_claim(world, subject, "doomed")
        subject.interrupt(world.plugins[subject.name], outcome.provider_id)
        ref = _interruption_ref(subject, request)
        for one in await _announced(world, subject, outcome.provider_id, ref):
            assert one.id, "an announcement without an id cannot be acknowledged"
            assert one.kind is not InterruptionKind.UNKNOWN, (
                f"the interruption {one.id} could not be parsed: {one.detail}"
            )
            if ref is None:
                await world.providers.acknowledge_interruptions(subject.name, [one.id])
        problems = world.providers.invalid_announcements(subject.name)
        assert not problems, "; ".join(problems)
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_062_acknowledging_may_be_repeated(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: acknowledging an id twice, or an unknown id, is not an error."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_acknowledge_interruptions")
        for _ in range(2):
            await world.providers.acknowledge_interruptions(subject.name, ["never-was"])

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_063_reading_a_node_asks_nobody(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST NOT: karpenter_read_interruptions does I/O; it is called for each change of a Node."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_read_interruptions")
        request, outcome = await rule_steps.launch_new_claim(world, subject, "read")
        try:
            node = await rule_steps.booted_node(world, subject, outcome.provider_id)
            with rule_steps.network_forbidden() as seen:
                ref = request.node_claim.spec.node_class_ref
                await world.providers.read_interruptions(ref, node)
            assert not seen, f"reading a Node used the network or started a program: {seen}"
        finally:
            await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_064_a_launch_that_fails_late_is_announced(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: a launch that was accepted and fails later is announced with its error."""

    async def scenario(world: ProviderWorld) -> None:
        if CloudTrouble.LATE_FAILURE not in subject.troubles:
            pytest.skip(
                "does not apply: launches do not fail late (CloudTrouble.LATE_FAILURE is not in "
                "ConformanceSubject.troubles)"
            )
        request = await world.request("fails-late", subject.node_class)
        with rule_steps.trouble(subject, world, CloudTrouble.LATE_FAILURE):
            outcome = await world.launch(request)
            if not isinstance(outcome, LaunchedInstance):
                assert isinstance(outcome, InsufficientCapacityError), (
                    f"an instance that fails for lack of capacity returned {outcome!r}"
                )
                return
            rule_steps.skip_unless_implemented(world, subject, "karpenter_poll_interruptions")
            announced = await _announced(world, subject, outcome.provider_id)
        failed = next(
            (one for one in announced if one.kind is InterruptionKind.LAUNCH_FAILED), announced[0]
        )
        assert failed.kind is InterruptionKind.LAUNCH_FAILED, (
            f"the launch of {outcome.provider_id} failed, and it is announced as {failed.kind}"
        )
        assert isinstance(failed.error, InsufficientCapacityError), (
            f"the launch failed for lack of capacity, and its error is {failed.error!r}"
        )
        await world.providers.acknowledge_interruptions(subject.name, [failed.id])
        left = await world.providers.poll_interruptions(subject.name)
        assert failed.id not in {one.id for one in left}, (
            f"{failed.id} is announced although it was acknowledged"
        )
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)
