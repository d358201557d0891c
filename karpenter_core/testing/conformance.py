"""The rules of the provider contract, as tests that any provider's own test suite can run.

One function for each rule id of `docs/provider-contract.md` that can be tested from outside. In the
provider's tests:

    from karpenter_core.testing.conformance import *  # noqa: F403

    @pytest.fixture
    def subject() -> Subject:
        return Subject(name="mycloud", make=MyProvider, node_class=MyNodeClass(...))

Nothing is mocked: give `make` a plug-in that talks to a simulated cloud, or to a real one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    REGISTERED,
    UNREGISTERED_TAINT,
    WELL_KNOWN,
    ZONE,
)
from karpenter_core.api.labels import NODE_POOL as _NODE_POOL
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import (
    CloudProviderError,
    InsufficientCapacityError,
    NodeClaimNotFoundError,
)
from karpenter_core.provider.contract import (
    CONTRACT_VERSION,
    Instance,
    LaunchedInstance,
    Termination,
)
from karpenter_core.testing.provider_world import ProviderWorld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import timedelta
    from pathlib import Path

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.provider.contract import LaunchRequest

# ruff: noqa: S101 - this is a test suite
# ruff: noqa: D103 - a test's name says what holds; the rule's text stands in the contract

__all__ = [
    "Subject",
    "test_pc_002_speaks_this_version_of_the_contract",
    "test_pc_010_a_node_class_is_ready_or_says_why_not",
    "test_pc_011_the_hash_of_a_node_class_is_stable",
    "test_pc_020_instance_types_have_unique_names",
    "test_pc_021_instance_types_define_every_well_known_label",
    "test_pc_022_offerings_have_one_zone_and_one_capacity_type",
    "test_pc_023_prices_are_not_negative",
    "test_pc_024_instance_types_hold_pods",
    "test_pc_030_each_request_has_its_own_outcome",
    "test_pc_031_a_token_launches_once",
    "test_pc_032_what_is_launched_is_what_was_asked_for",
    "test_pc_034_no_capacity_is_an_outcome_and_leaves_nothing",
    "test_pc_036_a_node_registers_tainted",
    "test_pc_040_a_launched_instance_is_listed_with_its_claim",
    "test_pc_041_an_unknown_instance_is_not_found",
    "test_pc_042_a_launched_instance_is_found",
    "test_pc_050_termination_ends_in_gone",
    "test_pc_051_terminating_what_never_was_is_gone",
    "test_pc_052_a_gone_instance_is_listed_no_more",
    "test_pc_070_instances_outlive_the_process",
]

_ATTEMPTS = 100
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The provider under test."""

    name: str
    make: Callable[[], object]
    """Makes the plug-in, as a new process would; state that is durable stays."""
    node_class: NodeClass
    """One that can be launched."""
    settings: Mapping[str, str | int | bool | timedelta] = field(
        default_factory=dict[str, "str | int | bool | timedelta"]
    )


def _run(
    subject: Subject, folder: Path, scenario: Callable[[ProviderWorld], Awaitable[None]]
) -> None:
    async def run() -> None:
        async with _world(subject, folder) as world:
            await scenario(world)

    asyncio.run(run())


def _world(subject: Subject, folder: Path) -> ProviderWorld:
    return ProviderWorld(
        plugins={subject.name: subject.make()},
        cache_folder=folder,
        settings=subject.settings,
    )


async def _launched(world: ProviderWorld, request: LaunchRequest) -> LaunchedInstance:
    outcome = await world.launch(request)
    assert isinstance(outcome, LaunchedInstance), outcome
    return outcome


async def _gone(world: ProviderWorld, request: LaunchRequest, provider_id: str) -> None:
    ref = request.node_claim.spec.node_class_ref
    for _ in range(_ATTEMPTS):
        outcome = await world.providers.terminate(ref, provider_id)
        await world.settle()
        if outcome is Termination.GONE:
            return
        await asyncio.sleep(_PAUSE_SECONDS)
    pytest.fail(f"{provider_id} is still not gone")


def test_pc_002_speaks_this_version_of_the_contract(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        info = world.providers.infos()[subject.name]
        assert (info.name, info.contract_version) == (subject.name, CONTRACT_VERSION)
        assert type(subject.node_class) in info.node_classes

    _run(subject, tmp_path, scenario)


def test_pc_010_a_node_class_is_ready_or_says_why_not(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        resolution = await world.providers.resolve_node_class(subject.node_class)
        found = {c.type: c for c in (*subject.node_class.status.conditions, *resolution.conditions)}
        ready = found["Ready"]
        assert ready.status == "True" or (ready.reason and ready.message)

    _run(subject, tmp_path, scenario)


def test_pc_011_the_hash_of_a_node_class_is_stable(subject: Subject, tmp_path: Path) -> None:
    hashes: list[object] = []

    async def scenario(world: ProviderWorld) -> None:
        hashes.append(await world.providers.hash_node_class(subject.node_class))

    _run(subject, tmp_path, scenario)
    _run(subject, tmp_path, scenario)
    assert hashes[0] == hashes[1]


def test_pc_020_instance_types_have_unique_names(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        names = [it.name for it in await world.catalogue(subject.node_class)]
        assert names
        assert len(names) == len(set(names))

    _run(subject, tmp_path, scenario)


def test_pc_021_instance_types_define_every_well_known_label(
    subject: Subject, tmp_path: Path
) -> None:
    async def scenario(world: ProviderWorld) -> None:
        well_known = (WELL_KNOWN | world.providers.label_classes().well_known) - {_NODE_POOL}
        for it in await world.catalogue(subject.node_class):
            assert well_known <= set(it.requirements.keys()), it.name
            assert it.requirements.single_value(INSTANCE_TYPE) == it.name

    _run(subject, tmp_path, scenario)


def test_pc_022_offerings_have_one_zone_and_one_capacity_type(
    subject: Subject, tmp_path: Path
) -> None:
    async def scenario(world: ProviderWorld) -> None:
        for it in await world.catalogue(subject.node_class):
            for offering in it.offerings:
                assert it.requirements.get(ZONE).has(offering.zone), it.name
                assert it.requirements.get(CAPACITY_TYPE).has(offering.capacity_type), it.name

    _run(subject, tmp_path, scenario)


def test_pc_023_prices_are_not_negative(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        for it in await world.catalogue(subject.node_class):
            assert all(o.price.amount >= 0 and o.price.currency for o in it.offerings), it.name

    _run(subject, tmp_path, scenario)


def test_pc_024_instance_types_hold_pods(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        for it in await world.catalogue(subject.node_class):
            allocatable = it.allocatable()
            for resource in ("cpu", "memory", "pods"):
                assert 0 < allocatable[resource] <= it.capacity[resource], (it.name, resource)

    _run(subject, tmp_path, scenario)


def test_pc_030_each_request_has_its_own_outcome(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        requests = [await world.request(f"many-{n}", subject.node_class) for n in range(5)]
        outcomes = await asyncio.gather(*(_launched(world, request) for request in requests))
        assert len({outcome.provider_id for outcome in outcomes}) == len(requests)
        for request, outcome in zip(requests, outcomes, strict=True):
            ref = request.node_claim.spec.node_class_ref
            found = await world.providers.fetch(ref, outcome.provider_id)
            assert isinstance(found, Instance)
            assert found.token == request.token
            await _gone(world, request, outcome.provider_id)

    _run(subject, tmp_path, scenario)


def test_pc_031_a_token_launches_once(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        request = await world.request("twice", subject.node_class)
        first = await _launched(world, request)
        second = await _launched(world, request)
        listed = await world.providers.list_instances(subject.name)
        assert first.provider_id == second.provider_id
        assert [i.token for i in listed.instances].count(request.token) == 1
        await _gone(world, request, first.provider_id)

    _run(subject, tmp_path, scenario)


def test_pc_032_what_is_launched_is_what_was_asked_for(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        types = {it.name: it for it in await world.catalogue(subject.node_class)}
        offers = [(it, o) for it in types.values() for o in it.offerings if o.available]
        it, offering = offers[-1]
        request = await world.request(
            "exact",
            subject.node_class,
            requirements=[
                RequirementSpec(key=INSTANCE_TYPE, operator="In", values=(it.name,)),
                RequirementSpec(key=ZONE, operator="In", values=(offering.zone,)),
                RequirementSpec(key=CAPACITY_TYPE, operator="In", values=(offering.capacity_type,)),
            ],
        )
        outcome = await _launched(world, request)
        wanted = (it.name, offering.zone, offering.capacity_type)
        assert (outcome.instance_type, outcome.zone, outcome.capacity_type) == wanted
        assert dict(outcome.capacity).keys() >= {"cpu", "memory", "pods"}
        assert outcome.labels.get(INSTANCE_TYPE, it.name) == it.name
        await _gone(world, request, outcome.provider_id)

    _run(subject, tmp_path, scenario)


def test_pc_034_no_capacity_is_an_outcome_and_leaves_nothing(
    subject: Subject, tmp_path: Path
) -> None:
    async def scenario(world: ProviderWorld) -> None:
        nowhere = RequirementSpec(key=ZONE, operator="In", values=("no-such-zone",))
        request = await world.request("nowhere", subject.node_class, requirements=[nowhere])
        outcome = await world.launch(request)
        assert isinstance(outcome, InsufficientCapacityError), outcome
        listed = await world.providers.list_instances(subject.name)
        assert request.token not in {i.token for i in listed.instances}

    _run(subject, tmp_path, scenario)


def test_pc_036_a_node_registers_tainted(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        request = await world.request("tainted", subject.node_class)
        outcome = await _launched(world, request)
        for node in world.nodes().values():  # none, where the cloud's machines boot elsewhere
            assert UNREGISTERED_TAINT in {taint.key for taint in node.taints}
            assert REGISTERED not in node.labels
            assert node.provider_id == outcome.provider_id
        await _gone(world, request, outcome.provider_id)

    _run(subject, tmp_path, scenario)


def test_pc_040_a_launched_instance_is_listed_with_its_claim(
    subject: Subject, tmp_path: Path
) -> None:
    async def scenario(world: ProviderWorld) -> None:
        request = await world.request("listed", subject.node_class)
        outcome = await world.providers.launch(request)
        assert isinstance(outcome, LaunchedInstance)
        listing = await world.providers.list_instances(subject.name)
        found = {i.provider_id: i for i in listing.instances}[outcome.provider_id]
        assert listing.complete
        assert (found.node_claim, found.token) == ("listed", request.token)
        await _gone(world, request, outcome.provider_id)

    _run(subject, tmp_path, scenario)


def test_pc_041_an_unknown_instance_is_not_found(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        request = await world.request("known", subject.node_class)
        outcome = await _launched(world, request)
        ref = request.node_claim.spec.node_class_ref
        await _gone(world, request, outcome.provider_id)
        found = await world.providers.fetch(ref, outcome.provider_id)
        assert isinstance(found, NodeClaimNotFoundError), found

    _run(subject, tmp_path, scenario)


def test_pc_042_a_launched_instance_is_found(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        request = await world.request("found", subject.node_class)
        outcome = await _launched(world, request)
        ref = request.node_claim.spec.node_class_ref
        found = await world.providers.fetch(ref, outcome.provider_id)
        assert isinstance(found, Instance), found
        assert (found.provider_id, found.terminating) == (outcome.provider_id, False)
        await _gone(world, request, outcome.provider_id)

    _run(subject, tmp_path, scenario)


def test_pc_050_termination_ends_in_gone(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        request = await world.request("ending", subject.node_class)
        outcome = await _launched(world, request)
        await _gone(world, request, outcome.provider_id)
        await _gone(world, request, outcome.provider_id)

    _run(subject, tmp_path, scenario)


def test_pc_051_terminating_what_never_was_is_gone(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        request = await world.request("pattern", subject.node_class)
        outcome = await _launched(world, request)
        ref = request.node_claim.spec.node_class_ref
        stranger = outcome.provider_id[:-1] + ("1" if outcome.provider_id[-1] == "0" else "0")
        answer = await world.providers.terminate(ref, stranger)
        assert not isinstance(answer, CloudProviderError)
        assert answer is Termination.GONE
        await _gone(world, request, outcome.provider_id)

    _run(subject, tmp_path, scenario)


def test_pc_052_a_gone_instance_is_listed_no_more(subject: Subject, tmp_path: Path) -> None:
    async def scenario(world: ProviderWorld) -> None:
        request = await world.request("ended", subject.node_class)
        outcome = await _launched(world, request)
        await _gone(world, request, outcome.provider_id)
        listing = await world.providers.list_instances(subject.name)
        assert outcome.provider_id not in {i.provider_id for i in listing.instances}

    _run(subject, tmp_path, scenario)


def test_pc_070_instances_outlive_the_process(subject: Subject, tmp_path: Path) -> None:
    async def scenario() -> None:
        before = _world(subject, tmp_path)
        async with before:
            request = await before.request("durable", subject.node_class)
            outcome = await _launched(before, request)
        after = _world(subject, tmp_path)
        after.nodes = before.nodes
        async with after:
            listing = await after.providers.list_instances(subject.name)
            assert outcome.provider_id in {i.provider_id for i in listing.instances}
            await _gone(after, request, outcome.provider_id)

    asyncio.run(scenario())
