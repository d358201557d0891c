"""Resolution of CapacityBuffers: which pods, how many, and what their virtual pods look like."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.records import LOWEST_PRIORITY, Toleration, VolumeView
from karpenter_core.api.workload_records import PodTemplateView, WorkloadView
from karpenter_core.lifecycle.capacity_buffer.declaration import buffer_declarations
from karpenter_core.scheduling.problem import SchedulingPlan, UnschedulablePod
from karpenter_core.scheduling.virtual_pods import VirtualPlacement, virtual_placements
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.capacity_buffers import (
    MAX_VIRTUAL_PODS,
    BufferFailure,
    buffer_pods,
    buffer_size,
    buffer_source,
    limit_replicas,
    percentage_replicas,
    resolve_buffer,
    undeclared_buffers,
)
from karpenter_core.state.events import ObjectObserved, VirtualPodsDeclared, VirtualPodsPlaced
from karpenter_core.state.provisioning_input import build_provisioning_input
from karpenter_core.testing.builders import pod, pod_shape

NOW = datetime(2030, 1, 1, tzinfo=UTC)
CREATED = "2029-12-31T00:00:00Z"
TEMPLATE_REF = {"podTemplateRef": {"name": "chunk"}, "replicas": 2}


def buffer(name="headroom", *, namespace="web", uid="", version="1", **spec):
    return CapacityBuffer.model_validate(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid or f"uid-{namespace}-{name}",
                "resourceVersion": version,
                "creationTimestamp": CREATED,
            },
            "spec": spec or TEMPLATE_REF,
        }
    )


def scalable(kind="Deployment", *, replicas=1, name="web", shape=None):
    return WorkloadView(
        uid=f"uid-{kind}",
        kind=kind,
        namespace="web",
        name=name,
        resource_version=1,
        replicas=replicas,
        template=shape or pod_shape(namespace="web", cpu="500m"),
    )


def template(*, generation=1, shape=None, version=1):
    return PodTemplateView(
        uid="uid-template",
        namespace="web",
        name="chunk",
        resource_version=version,
        generation=generation,
        template=shape or pod_shape(namespace="web", cpu="1"),
    )


def snapshot_of(*objects):
    state = StateBuilder({})
    for each in objects:
        state.apply_event(ObjectObserved(each))
    return state.snapshot()


def requests_of(**amounts):
    return dict(pod_shape(**amounts).requests)


@pytest.mark.parametrize(
    ("limits", "requests", "fitting"),
    [
        ({"cpu": "4"}, {"cpu": "1"}, 4),
        ({"memory": "2Gi"}, {"memory": "512Mi"}, 4),
        ({"cpu": "8", "memory": "4Gi"}, {"cpu": "1", "memory": "1Gi"}, 4),
        ({"cpu": "3"}, {"cpu": "1"}, 3),
        ({"cpu": "10"}, {"cpu": "3"}, 3),
        ({"cpu": "1"}, {"cpu": "250m"}, 4),
        ({"cpu": "1"}, {"cpu": "2"}, 0),
        ({"cpu": "-1"}, {"cpu": "2"}, 0),
        ({"nvidia.com/gpu": "1"}, {"cpu": "1"}, None),
        ({"cpu": "1"}, {}, None),
        ({"pods": "1"}, {"cpu": "1"}, None),
        ({"cpu": "4000000000"}, {"cpu": "1m"}, 2**31 - 1),
    ],
)
def test_limits_hold_as_many_pods_as_fit(limits, requests, fitting):
    parsed = buffer(podTemplateRef={"name": "chunk"}, limits=limits).spec.limits
    requested = requests_of(**requests) if requests else {}

    assert limit_replicas(parsed, requested) == fitting


@pytest.mark.parametrize(
    ("replicas", "percentage", "expected"),
    [
        (10, 20, 2),
        (3, 10, 1),
        (1, 1, 1),
        (0, 50, 0),
        (10, 0, 0),
        (5, 100, 5),
        (5, 200, 10),
        (1000, 10, 100),
    ],
)
def test_a_percentage_is_rounded_up(replicas, percentage, expected):
    assert percentage_replicas(replicas, percentage) == expected


@pytest.mark.parametrize(
    ("spec", "scalable_replicas", "size"),
    [
        ({"replicas": 7}, None, 7),
        ({"replicas": 10, "limits": {"cpu": "3"}}, None, 3),
        ({"replicas": 3, "limits": {"cpu": "10"}}, None, 3),
        ({"limits": {"cpu": "5"}}, None, 5),
        ({"percentage": 20}, 10, 2),
        ({"replicas": 5, "percentage": 20}, 10, 5),
        ({"replicas": 5, "percentage": 80}, 10, 8),
        ({"replicas": 5, "percentage": 80, "limits": {"cpu": "4"}}, 10, 4),
        ({"percentage": 10}, 1, 1),
        ({"percentage": 10}, 0, 0),
        ({"percentage": 10}, None, 0),
        ({"replicas": 3, "limits": {"memory": "1Ti"}}, None, 3),
        ({}, None, 0),
    ],
)
def test_the_greatest_size_counts_up_to_the_limits(spec, scalable_replicas, size):
    made = buffer(**{"provisioningStrategy": None, **spec})

    assert (
        buffer_size(
            made, requests_of(cpu="1"), scalable_replicas=scalable_replicas, burst_replicas=None
        )
        == size
    )


def test_the_size_from_bursts_is_one_of_the_sizes():
    made = buffer(replicas=2, limits={"cpu": "6"})

    def size(bursts):
        return buffer_size(
            made, requests_of(cpu="1"), scalable_replicas=None, burst_replicas=bursts
        )

    assert [size(bursts) for bursts in (None, 0, 4, 100)] == [2, 2, 4, 6]


@given(
    st.none() | st.integers(0, 50),
    st.none() | st.integers(0, 300),
    st.integers(0, 40),
    st.none() | st.integers(0, 60),
    st.none() | st.integers(0, 60),
)
def test_a_size_never_exceeds_limits(replicas, percentage, scalable_replicas, cpu, bursts):
    spec = {"replicas": replicas, "percentage": percentage}
    if cpu is not None:
        spec["limits"] = {"cpu": str(cpu)}
    size = buffer_size(
        buffer(**spec),
        requests_of(cpu="1500m"),
        scalable_replicas=scalable_replicas,
        burst_replicas=bursts,
    )

    assert size >= 0
    assert cpu is None or size * 1500 <= cpu * 1000


@pytest.mark.parametrize(
    ("spec", "reason", "is_retried"),
    [
        (TEMPLATE_REF, "PodTemplateNotFound", False),
        ({"scalableRef": {"kind": "Deployment", "name": "web"}}, "ScalableRefNotFound", False),
        ({"scalableRef": {"kind": "StatefulSet", "name": "web"}}, "ScalableRefNotFound", False),
        ({"scalableRef": {"kind": "Job", "name": "web"}}, "ResolutionFailed", True),
        (
            {"scalableRef": {"apiGroup": "batch", "kind": "Deployment", "name": "web"}},
            "ResolutionFailed",
            True,
        ),
        ({"replicas": 1}, "ResolutionFailed", False),
    ],
)
def test_a_buffer_without_pods_says_why(spec, reason, is_retried):
    failure = resolve_buffer(buffer(**spec), snapshot_of())

    assert isinstance(failure, BufferFailure)
    assert (failure.reason, failure.is_retried) == (reason, is_retried)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet"])
@pytest.mark.parametrize("group", [{}, {"apiGroup": "apps"}], ids=["no-group", "apps"])
def test_workloads_of_apps_are_resolved(kind, group):
    """Without a number of replicas a workload has one."""
    made = buffer(scalableRef={"kind": kind, "name": "web", **group}, percentage=20)

    ten = resolve_buffer(made, snapshot_of(scalable(kind, replicas=10)))
    one = resolve_buffer(made, snapshot_of(scalable(kind, replicas=None)))

    assert (ten.replicas, one.replicas) == (2, 1)
    assert ten.pod_template is None
    assert ten.shape.requests["cpu"] == 500


def test_a_changed_template_is_resolved_again():
    made = buffer()
    state = StateBuilder({})
    state.apply_event(ObjectObserved(template()))
    before = resolve_buffer(made, state.snapshot())
    changed = template(generation=2, version=2, shape=pod_shape(namespace="web", cpu="2"))
    state.apply_event(ObjectObserved(changed))

    after = resolve_buffer(made, state.snapshot())

    assert (before.pod_template.generation, after.pod_template.generation) == (1, 2)
    assert (before.shape.requests["cpu"], after.shape.requests["cpu"]) == (1000, 2000)


def test_templates_are_those_of_the_buffers_namespace():
    elsewhere = buffer(namespace="other")

    assert isinstance(resolve_buffer(elsewhere, snapshot_of(template())), BufferFailure)


def test_one_buffer_has_no_more_virtual_pods_than_a_pass_can_place():
    made = buffer(podTemplateRef={"name": "chunk"}, limits={"cpu": "1000000"})
    resolved = resolve_buffer(made, snapshot_of(template()))

    assert (resolved.wanted, resolved.replicas) == (1_000_000, MAX_VIRTUAL_PODS)


def test_virtual_pods_are_as_the_template_says_without_its_volumes():
    shape = msgspec.structs.replace(
        pod_shape(namespace="web", cpu="1", labels={"app": "web"}, node_selector={"disk": "ssd"}),
        tolerations=(Toleration(key="gpu", operator="Exists"),),
        volumes=(
            VolumeView(name="data", claim_name="data"),
            VolumeView(name="tmp", ephemeral=True),
        ),
        annotations={"karpenter.sh/do-not-disrupt": "true"},
        scheduling_gates=("quota",),
        priority=1000,
    )
    made = buffer()

    pods = buffer_pods(made, shape, 3)

    assert [each.name for each in pods] == [f"capacity-buffer-headroom-{n}" for n in (1, 2, 3)]
    assert [each.uid for each in pods] == [f"{made.uid}-{n}" for n in (1, 2, 3)]
    assert len({id(each.shape) for each in pods}) == 1
    virtual = pods[0].shape
    assert (virtual.namespace, virtual.labels) == ("web", {"app": "web"})
    assert (virtual.requests, virtual.node_selector) == (shape.requests, {"disk": "ssd"})
    assert virtual.tolerations == shape.tolerations
    assert (virtual.volumes, virtual.scheduling_gates, virtual.annotations) == ((), (), {})
    assert (virtual.priority, virtual.gives_way) == (LOWEST_PRIORITY, True)
    assert str(virtual.virtual_source) == "CapacityBuffer web/headroom"
    assert all(each.is_virtual and each.is_provisionable for each in pods)
    assert buffer_pods(made, shape, 0) == ()


def declare(state, made, *, replicas=2, shape=None):
    pods = buffer_pods(made, shape or pod_shape(namespace="web", cpu="1"), replicas)
    state.apply_event(VirtualPodsDeclared(source=buffer_source(made), pods=pods))
    return pods


def test_virtual_pods_are_in_every_problem_and_nowhere_else():
    state = StateBuilder({})
    pods = declare(state, buffer())
    snapshot = state.snapshot()

    problem = build_provisioning_input(snapshot, now=NOW).problem

    assert problem.pods == pods
    assert not snapshot.pods
    assert not snapshot.pending_pods
    assert snapshot.has_virtual_pods


def test_withdrawn_pods_are_gone():
    state = StateBuilder({})
    made = buffer()
    declare(state, made)
    state.apply_event(VirtualPodsDeclared(source=buffer_source(made), pods=None))

    assert state.snapshot().virtual_pods == {}
    assert not state.snapshot().has_virtual_pods


def test_buffers_are_unknown_until_their_pods_are_declared():
    """Also those without any pod; none of other strategies."""
    state = StateBuilder({})
    known, empty, other = buffer(), buffer("empty"), buffer("other", provisioningStrategy="x/y")
    for made in (known, empty, other):
        state.apply_event(ObjectObserved(made))
    assert {each.name for each in undeclared_buffers(state.snapshot())} == {"headroom", "empty"}

    declare(state, known)
    state.apply_event(VirtualPodsDeclared(source=buffer_source(empty), pods=()))

    assert undeclared_buffers(state.snapshot()) == ()


def test_a_buffer_of_another_strategy_has_no_pods_and_says_why():
    """`karpenter plan` names it, so that nobody waits for its room."""
    state = StateBuilder({})
    state.apply_event(ObjectObserved(buffer("other", provisioningStrategy="x/y")))
    declarations, problems = buffer_declarations(state.snapshot())
    assert declarations == ()
    assert list(problems.values()) == ['provisioning strategy "x/y" is not acted on']


def test_a_pass_decides_about_the_pods_that_are_declared_only():
    """Buffers of one name in two namespaces are two; pods declared meanwhile are undecided."""
    state = StateBuilder({})
    one, other = buffer(), buffer(namespace="other")
    pods, others = declare(state, one), declare(state, other)
    plan = SchedulingPlan(
        existing={"node-1": (pods[0], others[0], pod("real"))},
        unschedulable={pods[1].uid: UnschedulablePod(message="no room")},
    )
    placements = virtual_placements(plan, state.snapshot().virtual_pods)
    assert placements == {
        buffer_source(one): VirtualPlacement(wanted=2, on_existing=1, failed=1, on_new=0),
        buffer_source(other): VirtualPlacement(wanted=2, on_existing=1, failed=0, on_new=0),
    }
    declare(state, other, replicas=3)

    state.apply_event(VirtualPodsPlaced(counts={"node-1": 2}, placements=placements))

    assert set(state.snapshot().virtual_placements) == {buffer_source(one)}
    declare(state, one)
    assert state.snapshot().virtual_placements == {}
