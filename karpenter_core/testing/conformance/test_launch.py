"""Rules of launches: one instance for each token, and a complete outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    OS,
    REGION,
    REGISTERED,
    UNREGISTERED_TAINT,
    WELL_KNOWN,
    ZONE,
)
from karpenter_core.api.nodeclaim import RequirementSpec, TaintSpec
from karpenter_core.errors import InsufficientCapacityError, LaunchFailedError
from karpenter_core.provider.catalogue import Requirements, compatible_offerings, offering_price
from karpenter_core.provider.contract import Instance, LaunchedInstance
from karpenter_core.testing.conformance import rule_steps
from karpenter_core.testing.subject import CloudTrouble

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.testing.provider_world import ProviderWorld
    from karpenter_core.testing.subject import ConformanceSubject

# ruff: noqa: S101 - this is a test suite

__all__ = [
    "test_pc_030_each_request_has_its_own_outcome",
    "test_pc_031_a_token_launches_once",
    "test_pc_032_what_is_launched_is_what_was_asked_for",
    "test_pc_033_a_token_that_is_used_up_launches_nothing",
    "test_pc_034_no_capacity_is_an_outcome_and_leaves_nothing",
    "test_pc_035_the_cheapest_is_chosen",
    "test_pc_036_a_node_registers_tainted",
    "test_pc_037_a_launch_does_not_wait_for_the_boot",
]


def test_pc_030_each_request_has_its_own_outcome(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: there is one outcome for each request, in their order."""

    async def scenario(world: ProviderWorld) -> None:
        requests = [await world.request(f"many-{n}", subject.node_class) for n in range(5)]
        outcomes = await asyncio.gather(
            *(rule_steps.launch(world, request) for request in requests)
        )
        ids = [outcome.provider_id for outcome in outcomes]
        assert len(set(ids)) == len(requests), f"requests share instances: {ids}"
        for request, outcome in zip(requests, outcomes, strict=True):
            ref = request.node_claim.spec.node_class_ref
            found = await world.providers.fetch(ref, outcome.provider_id)
            assert isinstance(found, Instance), f"just launched, {outcome.provider_id} is {found!r}"
            assert found.token == request.token, (
                f"the outcome of {request.token} is the instance of {found.token or 'no token'}"
            )
            await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario, shows="PC-030")


def test_pc_031_a_token_launches_once(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: any number of launches with one token create one instance."""

    async def scenario(world: ProviderWorld) -> None:
        request, first = await rule_steps.launch_new_claim(world, subject, "twice")
        second = await rule_steps.launch(world, request)
        tokens = [i.token for i in (await rule_steps.list_by_provider_id(world, subject)).values()]
        assert first.provider_id == second.provider_id, (
            f"one token launched {first.provider_id} and then {second.provider_id}"
        )
        assert tokens.count(request.token) == 1, (
            f"{tokens.count(request.token)} instances are listed for one token"
        )
        await rule_steps.terminate_until_gone(world, request, first.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_032_what_is_launched_is_what_was_asked_for(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: the instance has an offering that the claim allows, and the outcome names it."""

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
        outcome = await rule_steps.launch(world, request)
        wanted = (it.name, offering.zone, offering.capacity_type)
        got = (outcome.instance_type, outcome.zone, outcome.capacity_type)
        assert got == wanted, f"the claim allows {wanted} only, and got {got}"
        missing = {"cpu", "memory", "pods"} - dict(outcome.capacity).keys()
        assert not missing, f"the outcome's capacity lacks {sorted(missing)}"
        for resource, amount in outcome.allocatable.items():
            assert amount <= outcome.capacity.get(resource, 0), (
                f"the outcome says that {amount} of {outcome.capacity.get(resource, 0)} {resource} "
                "are allocatable"
            )
        named = outcome.labels.get(INSTANCE_TYPE, it.name)
        assert named == it.name, f"the outcome's label {INSTANCE_TYPE} is {named}, not {it.name}"
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_033_a_token_that_is_used_up_launches_nothing(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: a token whose instance is gone launches nothing: LaunchFailedError."""

    async def scenario(world: ProviderWorld) -> None:
        request, first = await rule_steps.launch_new_claim(world, subject, "again")
        await rule_steps.terminate_until_gone(world, request, first.provider_id)
        outcome = await world.launch(request)
        listed = await rule_steps.list_by_provider_id(world, subject)
        shown = [i.provider_id for i in listed.values() if i.token == request.token]
        if not subject.has_tokens and isinstance(outcome, LaunchedInstance):
            assert shown == [outcome.provider_id], (
                f"the launch of a claim whose instance is gone returned {outcome.provider_id}, and "
                f"its instances are {shown}"
            )
            await rule_steps.terminate_until_gone(world, request, outcome.provider_id)
            return
        assert isinstance(outcome, LaunchFailedError), (
            f"the token of an instance that is gone was launched again: {outcome!r}"
        )
        assert not shown, f"the launch returned {outcome!r}, and left the instances {shown}"

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_034_no_capacity_is_an_outcome_and_leaves_nothing(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST: without capacity the outcome is InsufficientCapacityError, and nothing is left behind."""

    async def scenario(world: ProviderWorld) -> None:
        nowhere = RequirementSpec(key=ZONE, operator="In", values=("no-such-zone",))
        request = await world.request("nowhere", subject.node_class, requirements=[nowhere])
        outcome = await world.launch(request)
        assert isinstance(outcome, InsufficientCapacityError), (
            f"no offering is in the zones that the claim allows, and its launch returned {outcome!r}"
        )
        tokens = {i.token for i in (await rule_steps.list_by_provider_id(world, subject)).values()}
        assert request.token not in tokens, "a launch that failed left an instance behind"

    rule_steps.run_rule(subject, tmp_path, scenario, needs_launch=True)


def test_pc_035_the_cheapest_is_chosen(subject: ConformanceSubject, tmp_path: Path) -> None:
    """SHOULD: the provider chooses the cheapest offering that has capacity."""

    async def scenario(world: ProviderWorld) -> None:
        request, outcome = await rule_steps.launch_new_claim(world, subject, "cheap")
        types = {it.name: it for it in request.instance_types}
        allowed = Requirements.from_specs(request.node_claim.spec.requirements)
        known = WELL_KNOWN | world.providers.label_classes().well_known
        prices = [
            (offering.price.amount, it.name, offering.zone, offering.capacity_type)
            for it in types.values()
            for offering in compatible_offerings(it, allowed, well_known=known)
        ]
        paid = offering_price(
            types[outcome.instance_type], zone=outcome.zone, capacity_type=outcome.capacity_type
        )
        assert paid == min(prices)[0], (
            f"{outcome.instance_type} {outcome.capacity_type} in {outcome.zone} costs {paid}, "
            f"and {min(prices)} is available"
        )
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_036_a_node_registers_tainted(subject: ConformanceSubject, tmp_path: Path) -> None:
    """MUST: the Node joins unregistered, with the claim's taints and the outcome's provider ID."""

    async def scenario(world: ProviderWorld) -> None:
        request = await world.request(
            "tainted",
            subject.node_class,
            taints=[TaintSpec(key="team", value="web", effect="NoSchedule")],
            startup_taints=[TaintSpec(key="starting", effect="NoExecute")],
        )
        outcome = await rule_steps.launch(world, request)
        try:
            node = await rule_steps.booted_node(world, subject, outcome.provider_id)
            taints = {(taint.key, taint.effect) for taint in node.taints}
            wanted = {
                (UNREGISTERED_TAINT, "NoExecute"),
                ("team", "NoSchedule"),
                ("starting", "NoExecute"),
            }
            absent = ", ".join(f"{key}:{effect}" for key, effect in sorted(wanted - taints))
            assert not absent, f"the Node joins without the taints {absent}"
            assert REGISTERED not in node.labels, f"the Node joins with the label {REGISTERED}"
            assert node.provider_id == outcome.provider_id, (
                f"the Node's providerID is {node.provider_id!r}, the outcome's "
                f"{outcome.provider_id!r}"
            )
            named = node.labels.get(INSTANCE_TYPE, outcome.instance_type)
            assert named == outcome.instance_type, (
                f"the Node's label {INSTANCE_TYPE} is {named}, the outcome's type "
                f"{outcome.instance_type}"
            )
            zone = node.labels.get(ZONE, outcome.zone)
            assert zone == outcome.zone, (
                f"the Node's label {ZONE} is {zone}, the outcome's zone {outcome.zone}: name zones in "
                "the catalogue as the Nodes do"
            )
            (it,) = (it for it in request.instance_types if it.name == outcome.instance_type)
            for key in sorted({ARCH, OS, REGION} & node.labels.keys()):
                assert it.requirements.get(key).has(node.labels[key]), (
                    f"the Node's label {key} is {node.labels[key]}, which the requirements of the instance "
                    f"type {it.name} exclude"
                )
        finally:
            await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario)


def test_pc_037_a_launch_does_not_wait_for_the_boot(
    subject: ConformanceSubject, tmp_path: Path
) -> None:
    """MUST NOT: a launch waits until the instance has booted."""

    async def scenario(world: ProviderWorld) -> None:
        request = await world.request("booting", subject.node_class)
        with rule_steps.trouble(subject, world, CloudTrouble.NO_BOOT):
            launch = asyncio.ensure_future(world.providers.launch(request))
            await asyncio.wait({launch}, timeout=subject.patience.total_seconds())
            answered_in_time = launch.done()
        outcome = await launch  # now that the instance boots
        await world.settle()
        assert answered_in_time, (
            f"the instance does not boot, and its launch does not return within "
            f"{subject.patience.total_seconds():g} s: return as soon as the cloud has accepted the request"
        )
        assert isinstance(outcome, LaunchedInstance), (
            f"the instance does not boot, and its launch returned {outcome!r}: whether a node ever "
            "registers is for the core to judge"
        )
        await rule_steps.terminate_until_gone(world, request, outcome.provider_id)

    rule_steps.run_rule(subject, tmp_path, scenario, needs_launch=True)
