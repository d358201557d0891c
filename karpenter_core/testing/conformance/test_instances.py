"""Rules of instances: what is listed, found, terminated, and outlives the process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from karpenter_core.errors import NodeClaimNotFoundError, TerminationRefusedError
from karpenter_core.provider.contract import Instance, Termination
from karpenter_core.testing.conformance import stage
from karpenter_core.testing.subject import Trouble

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.provider.contract import LaunchedInstance, LaunchRequest
    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import Subject

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
    "test_pc_050_termination_ends_in_gone",
    "test_pc_051_terminating_what_never_was_is_gone",
    "test_pc_052_a_gone_instance_is_listed_no_more",
    "test_pc_053_a_protected_instance_holds_back_no_other",
    "test_pc_070_instances_outlive_the_process",
]


def test_pc_040_a_launched_instance_is_listed_with_its_claim(
    subject: Subject, tmp_path: Path
) -> None:
    """MUST: an instance is listed from its launch's answer on, with its claim's name and UID."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await stage.launched(world, subject, "listed")
        listing = await world.providers.list_instances(subject.name)
        assert listing.complete, f"without trouble a listing is complete: {listing.problem}"
        found = {i.provider_id: i for i in listing.instances}.get(outcome.provider_id)
        assert found is not None, (
            f"{outcome.provider_id} was launched and is not listed: it would be taken for gone"
        )
        assert (found.node_claim, found.token) == ("listed", request.token), (
            f"the listing says that it was launched for {found.node_claim!r}, {found.token!r}"
        )
        await stage.gone(world, request, outcome.provider_id)

    stage.run(subject, tmp_path, scenario)


def test_pc_041_an_unknown_instance_is_not_found(subject: Subject, tmp_path: Path) -> None:
    """MUST: fetching what is gone answers NodeClaimNotFoundError."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await stage.launched(world, subject, "known")
        ref = request.node_claim.spec.node_class_ref
        await stage.gone(world, request, outcome.provider_id)
        found = await world.providers.fetch(ref, outcome.provider_id)
        assert isinstance(found, NodeClaimNotFoundError), (
            f"{outcome.provider_id} is gone, and fetching it came to {found!r}"
        )

    stage.run(subject, tmp_path, scenario)


def test_pc_042_a_launched_instance_is_found(subject: Subject, tmp_path: Path) -> None:
    """MUST: fetching answers an instance that exists, and whether it is shutting down."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await stage.launched(world, subject, "found")
        ref = request.node_claim.spec.node_class_ref
        found = await world.providers.fetch(ref, outcome.provider_id)
        assert isinstance(found, Instance), f"fetching {outcome.provider_id} came to {found!r}"
        assert (found.provider_id, found.terminating) == (outcome.provider_id, False)
        if await world.providers.terminate(ref, outcome.provider_id) is Termination.STARTED:
            after = await world.providers.fetch(ref, outcome.provider_id)
            assert isinstance(after, NodeClaimNotFoundError) or (
                isinstance(after, Instance) and after.terminating
            ), f"asked to go, the instance is answered as {after!r}"
        await stage.gone(world, request, outcome.provider_id)

    stage.run(subject, tmp_path, scenario)


def test_pc_043_a_partial_listing_says_so(subject: Subject, tmp_path: Path) -> None:
    """MUST: a listing of which any part could not be read has complete=False, and says why."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await stage.launched(world, subject, "unseen")
        with stage.trouble(subject, world, Trouble.PARTIAL_LISTING):
            listing = await world.providers.list_instances(subject.name)
            assert not listing.complete, (
                "part of the listing could not be read, and it calls itself complete: "
                "the core would take what is missing for gone"
            )
            assert listing.problem, "the listing does not say why it is not complete"
        await stage.gone(world, request, outcome.provider_id)

    stage.run(subject, tmp_path, scenario)


def test_pc_044_instances_of_other_clusters_are_not_listed(
    subject: Subject, tmp_path: Path
) -> None:
    """MUST NOT: instances of other clusters are listed."""
    if subject.foreign is None:
        pytest.skip("not shown: the subject makes no foreign machines (Subject.foreign)")

    async def scenario(world: ProviderWorld) -> None:
        assert subject.foreign is not None
        stranger = subject.foreign(world.plugins[subject.name])
        found = await stage.listed(world, subject)
        assert stranger not in found, (
            f"{stranger} belongs to another cluster and is listed: it would be deleted as leaked"
        )

    stage.run(subject, tmp_path, scenario)


def test_pc_045_tasks_keep_what_they_cannot_see(subject: Subject, tmp_path: Path) -> None:
    """MUST NOT: periodic tasks delete instances on the word of a partial listing."""

    async def scenario(world: ProviderWorld) -> None:
        _has_tasks(world)
        pairs = [await stage.launched(world, subject, f"kept-{n}") for n in range(3)]
        with stage.trouble(subject, world, Trouble.PARTIAL_LISTING):
            await stage.run_tasks(world, in_trouble=True)
        for request, outcome in pairs:
            await _still_there(world, request, outcome, when="while listings were partial")
            await stage.gone(world, request, outcome.provider_id)

    stage.run(subject, tmp_path, scenario)


def _has_tasks(world: ProviderWorld) -> None:
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


def test_pc_046_syncing_may_be_repeated(subject: Subject, tmp_path: Path) -> None:
    """MUST: karpenter_sync_instance is idempotent."""

    async def scenario(world: ProviderWorld) -> None:
        stage.hook_is_there(world, subject, "karpenter_sync_instance")
        request, outcome = await stage.launched(world, subject, "synced")
        try:
            node = await stage.node_of(world, subject, outcome.provider_id)
            claim = request.node_claim
            status = claim.status.model_copy(update={"provider_id": outcome.provider_id})
            claim = claim.model_copy(update={"status": status})
            for _ in range(2):
                await world.providers.sync_instance(claim, node)
            assert outcome.provider_id in await stage.listed(world, subject), (
                "after karpenter_sync_instance the instance is listed no more: ownership tags "
                "must stay"
            )
        finally:
            await stage.gone(world, request, outcome.provider_id)

    stage.run(subject, tmp_path, scenario)


def test_pc_047_tasks_leave_instances_to_the_core(subject: Subject, tmp_path: Path) -> None:
    """MUST NOT: periodic tasks delete instances; which of them are leaked the core knows."""

    async def scenario(world: ProviderWorld) -> None:
        _has_tasks(world)
        request, outcome = await stage.launched(world, subject, "unattended")
        for _ in range(3):
            await stage.run_tasks(world)
        await _still_there(world, request, outcome, when="with nothing wrong")
        await stage.gone(world, request, outcome.provider_id)

    stage.run(subject, tmp_path, scenario)


def test_pc_050_termination_ends_in_gone(subject: Subject, tmp_path: Path) -> None:
    """MUST: terminating may be repeated; it answers STARTED until the instance is gone, then GONE."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await stage.launched(world, subject, "ending")
        await stage.gone(world, request, outcome.provider_id)
        await stage.gone(world, request, outcome.provider_id)
        if subject.held is not None:
            left = set(subject.held(world.plugins[subject.name]))
            assert outcome.provider_id not in left, (
                f"GONE was answered, and the cloud still has {outcome.provider_id}"
            )

    stage.run(subject, tmp_path, scenario)


def test_pc_051_terminating_what_never_was_is_gone(subject: Subject, tmp_path: Path) -> None:
    """MUST: terminating answers GONE for ids that never were."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await stage.launched(world, subject, "pattern")
        ref = request.node_claim.spec.node_class_ref
        stranger = outcome.provider_id[:-1] + ("1" if outcome.provider_id[-1] == "0" else "0")
        answer = await world.providers.terminate(ref, stranger)
        assert answer is Termination.GONE, (
            f"{stranger} never was, and terminating it came to {answer!r}"
        )
        await stage.gone(world, request, outcome.provider_id)

    stage.run(subject, tmp_path, scenario)


def test_pc_052_a_gone_instance_is_listed_no_more(subject: Subject, tmp_path: Path) -> None:
    """MUST: after GONE the instance is neither listed nor found."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await stage.launched(world, subject, "ended")
        await stage.gone(world, request, outcome.provider_id)
        found = await stage.listed(world, subject)
        assert outcome.provider_id not in found, (
            f"GONE was answered for {outcome.provider_id}, and it is still listed"
        )

    stage.run(subject, tmp_path, scenario)


def test_pc_053_a_protected_instance_holds_back_no_other(subject: Subject, tmp_path: Path) -> None:
    """MUST: one instance that may not be terminated is an error of its own; the others end."""
    protect = subject.protect
    if protect is None:
        pytest.skip("not shown: no machine can be protected (Subject.protect)")

    async def scenario(world: ProviderWorld) -> None:
        launched = [await stage.launched(world, subject, name) for name in ("a", "b", "c", "d")]
        ids = [outcome.provider_id for _, outcome in launched]
        request, kept = launched[1][0], ids[1]
        ref = request.node_claim.spec.node_class_ref
        with protect(world.plugins[subject.name], kept):
            outcomes = await asyncio.gather(
                *(world.providers.terminate(ref, provider_id) for provider_id in ids)
            )
            answer = outcomes[1]
            assert isinstance(answer, TerminationRefusedError), (
                f"{kept} may not be terminated, and terminating it came to {answer!r}"
            )
            assert kept.rpartition("/")[2].rpartition(".")[2] in str(answer), (
                f"the refusal does not name {kept}: {answer}"
            )
            for (other, outcome), answered in zip(launched, outcomes, strict=True):
                if outcome.provider_id == kept:
                    continue
                assert isinstance(answered, Termination), (
                    f"{kept} may not be terminated, and {outcome.provider_id} of the same batch "
                    f"came to {answered!r}"
                )
                await stage.gone(world, other, outcome.provider_id)
            there = (await stage.listed(world, subject)).get(kept)
            assert there is not None, f"{kept} may not be terminated, and is not listed any more"
        assert await _can_end(world, request, kept), f"{kept} is no longer protected, and stays"

    stage.run(subject, tmp_path, scenario)


async def _can_end(world: ProviderWorld, request: LaunchRequest, provider_id: str) -> bool:
    """Terminate an instance that was protected a moment ago; a refusal may be remembered for a while."""
    ref = request.node_claim.spec.node_class_ref
    deadline = world.clock.monotonic() + stage.GONE_WITHIN_SECONDS
    while world.clock.monotonic() < deadline:
        if await world.providers.terminate(ref, provider_id) is Termination.GONE:
            return True
        await world.settle()
        await asyncio.sleep(0.02)
    return False


def test_pc_070_instances_outlive_the_process(subject: Subject, tmp_path: Path) -> None:
    """MUST: nothing about instances is kept in the process alone."""

    async def scenario() -> None:
        before = stage.world_of(subject, tmp_path)
        async with before:
            request, outcome = await stage.launched(before, subject, "durable")
        after = stage.world_of(subject, tmp_path)
        after.nodes = before.nodes
        async with after:
            assert outcome.provider_id in await stage.listed(after, subject), (
                f"a new process does not list {outcome.provider_id}, launched by the one before"
            )
            again = await stage.launch(after, request)
            assert again.provider_id == outcome.provider_id, (
                f"to a new process the token is new: it launched {again.provider_id} beside "
                f"{outcome.provider_id}"
            )
            await stage.gone(after, request, outcome.provider_id)

    asyncio.run(scenario())
