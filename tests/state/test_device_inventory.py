"""A problem holds what devices are allocated from, unless they are ignored."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from karpenter_core.api.devices import (
    DeviceTemplate,
    InstanceDevices,
    ResourceClaimTemplateView,
)
from karpenter_core.api.workload_records import DaemonSetView
from karpenter_core.state.device_inventory import slices_of_node
from karpenter_core.state.events import ObjectObserved
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.testing.builders import (
    EPOCH,
    catalogue,
    instance_type,
    node_pool,
    pod,
    pod_shape,
    requirement_spec,
)
from karpenter_core.testing.state_builders import node, node_and_claim, node_claim, synced_state
from tests.scheduling.devices.builders import allocated, claim, device_class, resource_slice

DEVICES = InstanceDevices(templates=(DeviceTemplate(driver="d", pool="p"),))
ALLOCATES = ProblemSettings(ignores_devices=False)
POOL = node_pool("default")


def problem(builder, settings=ALLOCATES):
    return build_provisioning_input(
        builder.snapshot(), now=EPOCH, problem_settings=settings
    ).problem


def test_a_problem_holds_claims_classes_and_slices():
    objects = claim("gpu"), device_class(), resource_slice(node="node-1")
    builder = synced_state(POOL, *objects)
    devices = problem(builder).devices
    assert set(devices.claims) == {"default/gpu"}
    assert set(devices.classes) == {"gpu.example.com"}
    assert [one.node_name for one in devices.slices] == ["node-1"]
    assert slices_of_node(builder.snapshot(), "node-1") == devices.slices
    assert slices_of_node(builder.snapshot(), "node-2") == ()


def test_a_problem_holds_nothing_of_devices_while_they_are_ignored():
    assert problem(synced_state(POOL, claim("gpu")), ProblemSettings()).devices is None


def test_daemons_with_claims_count_only_if_devices_are_allocated():
    """Case 161."""
    shape = msgspec.structs.replace(pod_shape(owner_kind="DaemonSet"), resource_claims=("gpu",))
    owner = DaemonSetView(uid="u", namespace="default", name="ds", template=shape)
    builder = synced_state(POOL, owner)
    assert len(problem(builder).daemons) == 1
    assert problem(builder, ProblemSettings()).daemons == ()


def test_a_changed_claim_replaces_the_one_before():
    builder = synced_state(POOL, claim("gpu"))
    newer = msgspec.structs.replace(claim("gpu"), resource_version=2, is_allocated=True)
    builder.apply_event(ObjectObserved(newer))
    assert problem(builder).devices.claims["default/gpu"].is_allocated


@pytest.mark.parametrize(
    "resource", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com"]
)
def test_a_pod_that_requests_the_resource_of_a_class_is_refused_with_the_reason(resource):
    """Unless an instance type or a node has the resource; while devices are ignored it is any resource."""
    offered = msgspec.structs.replace(device_class(), extended_resource="example.com/gpu")
    asking = pod("training", requests={resource: "1"})

    def ignored(*objects, settings=ALLOCATES, **options):
        builder = synced_state(POOL, offered, asking, *objects, **options)
        asked = build_provisioning_input(builder.snapshot(), now=EPOCH, problem_settings=settings)
        return [each.reason for each in asked.ignored]

    (reason,) = ignored()
    assert reason == (
        f'the resource "{resource}" is that of deviceclass "gpu.example.com", which is not '
        "supported: request its devices with a ResourceClaim"
    )
    assert ignored(settings=ProblemSettings()) == []
    assert ignored(node("plugged", allocatable={resource: "1"})) == []
    typed_alike = catalogue(instance_type("gpu", resources={resource: "1"}))
    assert ignored(catalogues={"default": typed_alike}) == []


def daemon_with_claim(uid="ds"):
    """A DaemonSet, and the template of its claim."""
    shape = msgspec.structs.replace(
        pod_shape(owner_kind="DaemonSet"),
        resource_claims=("gpu",),
        resource_claim_templates={"gpu": "one-gpu"},
    )
    template = ResourceClaimTemplateView(
        uid="t", namespace="default", name="one-gpu", requests=claim("gpu").requests
    )
    return DaemonSetView(uid=uid, namespace="default", name="agent", template=shape), template


def test_daemons_claim_what_their_templates_say():
    """Without the template no claim is generated."""
    daemon_set, template = daemon_with_claim()
    assert problem(synced_state(POOL, daemon_set)).devices.daemon_claims == {}
    found = problem(synced_state(POOL, daemon_set, template)).devices.daemon_claims
    assert [one.requests for one in found["default/agent"]] == [template.requests]


def test_a_starting_node_expects_daemons_that_have_no_devices_yet():
    daemon_set, template = daemon_with_claim()
    starting = node_and_claim("starting", stage="Registered")
    elsewhere = node_and_claim("ready")
    running = msgspec.structs.replace(
        pod("agent-1", owner_kind="DaemonSet", node_name="starting"),
        owner_uid=daemon_set.uid,
        resource_claim_statuses={"gpu": "agent-1-gpu"},
    )
    objects = POOL, daemon_set, template, *starting, *elsewhere
    expected = problem(synced_state(*objects)).devices.expected_daemons
    assert expected == {"starting": {"default/agent"}}
    waiting = problem(synced_state(*objects, running, claim("agent-1-gpu"))).devices
    assert waiting.expected_daemons == expected
    served = allocated("agent-1-gpu", "gpu-0", node="starting")
    found = problem(synced_state(*objects, running, served)).devices
    assert found.expected_daemons == {"starting": frozenset()}


def typed(name, devices=None):
    return replace(instance_type(name), devices=devices)


def test_a_starting_claim_may_have_the_devices_of_each_of_its_types():
    types = catalogue(typed("plain"), typed("gpu", DEVICES), typed("other"))
    listed = (requirement_spec("node.kubernetes.io/instance-type", "In", "plain", "gpu"),)
    starting = node_claim("starting", requirements=listed)
    launched = node_claim("launched", stage="Launched", instance_type="gpu")
    builder = synced_state(POOL, starting, launched, catalogues={"default": types})
    node_types = problem(builder).devices.node_types
    assert set(node_types["starting"]) == {None, DEVICES}
    assert node_types["launched"] == (DEVICES,)
