"""Rules of instances: listing, terminating, and surviving a restart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from karpenter_core.errors import (
    CloudProviderError,
    NodeClaimNotFoundError,
    TerminationRefusedError,
)
from karpenter_core.provider.contract import Instance, TerminationStatus
from karpenter_core.testing.conformance import rule_steps
from karpenter_core.testing.provider_world import FakeNodes
from karpenter_core.testing.subject import CloudTrouble

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest
    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

# ruff: noqa: S101 - this is a test suite

__all__ = [
    "test_pc_040_a_launched_instance_is_listed_with_its_claim",
    "test_pc_041_an_unknown_instance_is_not_found",
    "test_pc_042_a_launched_instance_is_found",
    "test_pc_043_a_partial_listing_says_so",
    "test_pc_044_instances_of_other_clusters_are_not_listed",
    "test_pc_045_tasks_keep_what_they_cannot_see",
    "test_pc_046_syncing_may_be_repeated",
    "test_pc_047_tasks_leave_instances_to_the_core",
    "test_pc_048_a_listing_that_is_behind_says_since_when",
    "test_pc_050_termination_ends_in_gone",
    "test_pc_051_terminating_what_never_was_is_gone",
    "test_pc_052_a_gone_instance_is_listed_no_more",
    "test_pc_053_a_protected_instance_holds_back_no_other",
    "test_pc_070_instances_outlive_the_process",
]


def test_pc_040_a_launched_instance_is_listed_with_its_claim(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: an instance is listed, with the claim's name and UID, as soon as its launch returns."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await rule_steps.launch_new_claim(world, subject, "listed")
        listing = await rule_steps.current_listing(world, subject)
        assert listing.complete, f"without trouble a listing is complete: {listing.problem}"
        found = {i.provider_id: i for i in listing.instances}.get(outcome.provider_id)
        assert found is not None, (
            f"{outcome.provider_id} was launched and is not listed: the core would conclude that it is gone"
        )
        assert (found.node_claim, found.token) == ("listed", request.token), (
            f"the listing says that it was launched for {found.node_claim!r}, {found.token!r}"
        )
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario, shows="PC-040")


def test_pc_041_an_unknown_instance_is_not_found(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: fetching an instance that is gone returns NodeClaimNotFoundError."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await rule_steps.launch_new_claim(world, subject, "known")
        ref = request.node_claim.spec.node_class_ref
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)
        found = await world.providers.fetch(ref, outcome.provider_id)
        assert isinstance(found, NodeClaimNotFoundError), (
            f"{outcome.provider_id} is gone, and fetching it returned {found!r}"
        )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_042_a_launched_instance_is_found(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: fetching returns an instance that exists, and whether it is shutting down."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await rule_steps.launch_new_claim(world, subject, "found")
        ref = request.node_claim.spec.node_class_ref
        found = await world.providers.fetch(ref, outcome.provider_id)
        assert isinstance(found, Instance), f"fetching {outcome.provider_id} returned {found!r}"
        assert found.provider_id == outcome.provider_id, (
            f"fetching {outcome.provider_id} returned another instance: {found.provider_id}"
        )
        assert not found.terminating, f"{outcome.provider_id} runs, and is fetched as terminating"
        if await world.providers.terminate(ref, outcome.provider_id) is TerminationStatus.STARTED:
            after = await world.providers.fetch(ref, outcome.provider_id)
            assert isinstance(after, NodeClaimNotFoundError) or (
                isinstance(after, Instance) and after.terminating
            ), f"after its termination the instance is returned as {after!r}"
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_043_a_partial_listing_says_so(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: a listing has complete=False and a problem, or raises, if any part could not be read."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await rule_steps.launch_new_claim(world, subject, "unseen")
        with rule_steps.trouble(subject, world, CloudTrouble.PARTIAL_LISTING):
            try:
                listing = await world.providers.list_instances(subject.name)
            except CloudProviderError:
                pass
            else:
                assert not listing.complete, (
                    "part of the listing could not be read, and it calls itself complete: "
                    "the core would take what is missing for gone"
                )
                assert listing.problem, "the listing does not say why it is not complete"
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_044_instances_of_other_clusters_are_not_listed(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST NOT: instances of other clusters are listed."""
    if subject.create_foreign_instance is None:
        pytest.skip(
            "not shown: the subject cannot create foreign instances (ConformanceSubject.create_foreign_instance)"
        )

    async def scenario(world: ProviderWorld) -> None:
        assert subject.create_foreign_instance is not None
        stranger = subject.create_foreign_instance(world.plugins[subject.name])
        found = await rule_steps.list_by_provider_id(world, subject)
        assert stranger not in found, (
            f"{stranger} belongs to another cluster and is listed: it would be deleted as leaked"
        )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_045_tasks_keep_what_they_cannot_see(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST NOT: periodic tasks delete instances that are missing in an incomplete listing."""

    async def scenario(world: ProviderWorld) -> None:
        _skip_without_tasks(world)
        pairs = [await rule_steps.launch_new_claim(world, subject, f"kept-{n}") for n in range(3)]
        with rule_steps.trouble(subject, world, CloudTrouble.PARTIAL_LISTING):
            await rule_steps.run_tasks(world, in_trouble=True)
        for request, outcome in pairs:
            await _still_there(world, request, outcome, when="while listings were partial")
            await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def _skip_without_tasks(world: ProviderWorld) -> None:
    if not world.providers.tasks():
        pytest.skip("does not apply: karpenter_declare_tasks is not implemented")


async def _still_there(
    world: ProviderWorld, request: LaunchRequest, outcome: LaunchedInstance, *, when: str
) -> None:
    ref = request.node_claim.spec.node_class_ref
    found = await world.providers.fetch(ref, outcome.provider_id)
    assert isinstance(found, Instance) and not found.terminating, (  # noqa: PT018
        f"{when}, a task deleted {outcome.provider_id}: {found!r}"
    )


def test_pc_046_syncing_may_be_repeated(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: karpenter_sync_instance is idempotent."""

    async def scenario(world: ProviderWorld) -> None:
        rule_steps.skip_unless_implemented(world, subject, "karpenter_sync_instance")
        request, outcome = await rule_steps.launch_new_claim(world, subject, "synced")
        try:
            node = await rule_steps.booted_node(world, subject, outcome.provider_id)
            claim = request.node_claim
            status = claim.status.model_copy(update={"provider_id": outcome.provider_id})
            claim = claim.model_copy(update={"status": status})
            for _ in range(2):
                await world.providers.sync_instance(claim, node)
            assert outcome.provider_id in await rule_steps.list_by_provider_id(world, subject), (
                "after karpenter_sync_instance the instance is listed no more: ownership tags "
                "must stay"
            )
        finally:
            await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_047_tasks_leave_instances_to_the_core(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST NOT: periodic tasks delete instances; the core deletes leaked ones."""

    async def scenario(world: ProviderWorld) -> None:
        _skip_without_tasks(world)
        request, outcome = await rule_steps.launch_new_claim(world, subject, "unattended")
        for _ in range(3):
            await rule_steps.run_tasks(world)
        await _still_there(world, request, outcome, when="with nothing wrong")
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_048_a_listing_that_is_behind_says_since_when(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: as_of has a time zone, is not in the future, and what was launched before is listed."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await rule_steps.launch_new_claim(world, subject, "behind")
        launched_at, shown = world.clock.now(), False
        deadline = world.clock.monotonic() + rule_steps.GONE_WITHIN_SECONDS
        while not shown and world.clock.monotonic() < deadline:
            listing = await world.providers.list_instances(subject.name)
            if listing.as_of is None:
                pytest.skip(
                    "does not apply: listings are not behind (InstanceListing.as_of is None)"
                )
            assert listing.as_of <= world.clock.now(), f"as_of {listing.as_of} is in the future"
            shown = outcome.provider_id in {each.provider_id for each in listing.instances}
            assert shown or listing.as_of <= launched_at, (
                f"the listing shows the instances of {listing.as_of}, and not {outcome.provider_id}, "
                f"which was launched before {launched_at}"
            )
            await asyncio.sleep(0.02)
        assert shown, f"{outcome.provider_id} is never listed"
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_050_termination_ends_in_gone(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: terminating is idempotent; it returns STARTED until the instance is gone, then GONE."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await rule_steps.launch_new_claim(world, subject, "ending")
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)
        if subject.list_resources is not None:
            left = set(subject.list_resources(world.plugins[subject.name]))
            assert outcome.provider_id not in left, (
                f"GONE was returned, and the cloud still has {outcome.provider_id}"
            )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_051_terminating_what_never_was_is_gone(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: terminating returns GONE for ids that never existed."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await rule_steps.launch_new_claim(world, subject, "pattern")
        ref = request.node_claim.spec.node_class_ref
        stranger = outcome.provider_id[:-1] + ("1" if outcome.provider_id[-1] == "0" else "0")
        answer = await world.providers.terminate(ref, stranger)
        assert answer is TerminationStatus.GONE, (
            f"{stranger} never existed, and terminating it returned {answer!r}"
        )
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_052_a_gone_instance_is_listed_no_more(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: after GONE the instance is neither listed nor found."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await rule_steps.launch_new_claim(world, subject, "ended")
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)
        found = await rule_steps.list_by_provider_id(world, subject)
        assert outcome.provider_id not in found, (
            f"GONE was returned for {outcome.provider_id}, and it is still listed"
        )

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_053_a_protected_instance_holds_back_no_other(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: a refused termination is the outcome of that instance; the others are terminated."""
    protect = subject.protect
    if protect is None:
        pytest.skip("not shown: the subject cannot protect instances (ConformanceSubject.protect)")

    async def scenario(world: ProviderWorld) -> None:
        launched = [
            await rule_steps.launch_new_claim(world, subject, name) for name in ("a", "b", "c", "d")
        ]
        ids = [outcome.provider_id for _, outcome in launched]
        request, kept = launched[1][0], ids[1]
        ref = request.node_claim.spec.node_class_ref
        with protect(world.plugins[subject.name], kept):
            outcomes = await asyncio.gather(
                *(world.providers.terminate(ref, provider_id) for provider_id in ids)
            )
            answer = outcomes[1]
            assert isinstance(answer, TerminationRefusedError), (
                f"{kept} may not be terminated, and terminating it returned {answer!r}"
            )
            assert kept.rpartition("/")[2].rpartition(".")[2] in str(answer), (
                f"the refusal does not name {kept}: {answer}"
            )
            for (other, outcome), answered in zip(launched, outcomes, strict=True):
                if outcome.provider_id == kept:
                    continue
                assert isinstance(answered, TerminationStatus), (
                    f"{kept} may not be terminated, and {outcome.provider_id} of the same batch "
                    f"returned {answered!r}"
                )
                await rule_steps.terminate_until_gone(world, other, outcome.provider_id)
            there = (await rule_steps.list_by_provider_id(world, subject)).get(kept)
            assert there is not None, f"{kept} may not be terminated, and is not listed any more"
        assert await _can_end(world, request, kept), f"{kept} is no longer protected, and stays"

    rule_steps.run_rule(subject, tmp_path, scenario)


async def _can_end(world: ProviderWorld, request: LaunchRequest, provider_id: str) -> bool:
    """Terminate an instance that was protected before; the refusal may be cached for a while."""
    ref = request.node_claim.spec.node_class_ref
    deadline = world.clock.monotonic() + rule_steps.GONE_WITHIN_SECONDS
    while world.clock.monotonic() < deadline:
        if await world.providers.terminate(ref, provider_id) is TerminationStatus.GONE:
            return True
        await world.settle()
        await asyncio.sleep(0.02)
    return False


def test_pc_070_instances_outlive_the_process(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: no data about instances is kept in the process alone."""
    launches: list[tuple[LaunchRequest, LaunchedInstance]] = []
    nodes = FakeNodes()

    async def launching(before: ProviderWorld) -> None:
        launches.append(await rule_steps.launch_new_claim(before, subject, "durable"))

    async def restarted(after: ProviderWorld) -> None:
        ((request, outcome),) = launches
        assert outcome.provider_id in await rule_steps.list_by_provider_id(after, subject), (
            f"a new process does not list {outcome.provider_id}, launched by the one before"
        )
        again = await rule_steps.launch(after, request)
        assert again.provider_id == outcome.provider_id, (
            f"to a new process the token is new: it launched {again.provider_id} beside "
            f"{outcome.provider_id}"
        )
        await rule_steps.terminate_until_gone(after, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, launching, nodes=nodes)
    rule_steps.run_rule(subject, tmp_path, restarted, nodes=nodes)
