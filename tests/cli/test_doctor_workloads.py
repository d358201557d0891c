"""Traps that `karpenter doctor` names in workloads, NodePools and controllers."""

from __future__ import annotations

import pytest

from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.records import LabelSelector, PodShape, PodView, TopologySpread
from karpenter_core.api.workload_records import PodDisruptionBudgetView
from karpenter_core.cli.doctor.workloads import controller_findings, workload_findings


def pods(count, *, app="web", spread=()):
    shape = PodShape(
        namespace="shop",
        labels={"app": app},
        owner_kind="ReplicaSet",
        owner_api_version="apps/v1",
        topology_spread=spread,
    )
    return [
        PodView(uid=f"{app}-{n}", name=f"{app}-{n}", shape=shape, owner_name=app, node_name="a")
        for n in range(count)
    ]


def budget(name="web", app="web", **limits):
    return PodDisruptionBudgetView(
        uid=name,
        namespace="shop",
        name=name,
        selector=LabelSelector(match_labels={"app": app}),
        **limits,
    )


def pool(name, *requirements, weight=None, taints=()):
    spec = {
        "nodeClassRef": {"group": "g", "kind": "K", "name": "k"},
        "requirements": [
            {"key": key, "operator": operator, "values": list(values)}
            for key, operator, *values in requirements
        ],
        "taints": [{"key": key, "effect": "NoSchedule"} for key in taints],
    }
    manifest = {"template": {"spec": spec}, **({} if weight is None else {"weight": weight})}
    return NodePool.model_validate({"metadata": {"name": name, "uid": name}, "spec": manifest})


def messages(*objects):
    return [finding.message for finding in workload_findings(objects)]


@pytest.mark.parametrize(
    ("limits", "count", "why"),
    [
        ({"max_unavailable": "0"}, 1, "maxUnavailable is 0"),
        ({"max_unavailable": "0%"}, 3, "maxUnavailable is 0%"),
        ({"min_available": "100%"}, 3, "minAvailable is 100%"),
        ({"min_available": "1"}, 1, "minAvailable is 1, and it selects 1 pod"),
        ({"min_available": "1"}, 2, ""),
        ({"max_unavailable": "1"}, 1, ""),
        ({"min_available": "50%"}, 1, ""),
        ({"max_unavailable": "0"}, 0, ""),
    ],
)
def test_a_budget_that_never_permits_an_eviction_is_named(limits, count, why):
    found = messages(budget(**limits), *pods(count))

    start = 'PodDisruptionBudget "shop/web" never permits an eviction'
    assert [text.startswith(f"{start} ({why})") for text in found] == ([True] if why else [])


def test_pods_of_two_budgets_are_named():
    found = messages(budget(max_unavailable="1"), budget("other", max_unavailable="1"), *pods(2))

    (message,) = found
    assert message == (
        "2 pods matched by several PodDisruptionBudgets (shop/other, shop/web): the API server refuses "
        "every eviction of such a pod"
    )


@pytest.mark.parametrize(
    ("key", "skew", "action", "count", "expected"),
    [
        ("kubernetes.io/hostname", 1, "DoNotSchedule", 5, 1),
        ("kubernetes.io/hostname", 1, "DoNotSchedule", 4, 0),
        ("kubernetes.io/hostname", 2, "DoNotSchedule", 5, 0),
        ("kubernetes.io/hostname", 1, "ScheduleAnyway", 5, 0),
        ("topology.kubernetes.io/zone", 1, "DoNotSchedule", 5, 0),
    ],
)
def test_a_strict_spread_of_many_pods_over_nodes_is_named(key, skew, action, count, expected):
    spread = (TopologySpread(topology_key=key, max_skew=skew, when_unsatisfiable=action),)

    found = [text for text in messages(*pods(count, spread=spread)) if "spread over nodes" in text]

    assert len(found) == expected


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        (pool("a"), pool("b"), True),
        (pool("a", weight=5), pool("b"), False),
        (pool("a", taints=["gpu"]), pool("b"), False),
        (pool("a", ("team", "In", "x")), pool("b", ("team", "In", "y")), False),
        (pool("a", ("team", "In", "x")), pool("b", ("zone", "In", "y")), True),
    ],
)
def test_node_pools_that_serve_the_same_pods_are_named(one, other, overlap):
    expected = ["NodePools of the same weight can launch nodes for the same pods: a and b"]

    assert messages(other, one) == (expected if overlap else [])


@pytest.mark.parametrize(
    ("requirements", "unreachable"),
    [
        ([("cpu", "Gt", "8"), ("cpu", "Lt", "4")], True),
        ([("team", "In", "x"), ("team", "NotIn", "x")], True),
        ([("cpu", "Gt", "4"), ("cpu", "Lt", "8")], False),
        ([("team", "DoesNotExist")], False),
    ],
)
def test_requirements_that_exclude_each_other_are_named(requirements, unreachable):
    found = messages(pool("a", *requirements))

    key = requirements[0][0]
    expected = (
        f'NodePool "a": the requirements of "{key}" exclude each other: no instance type can '
    )
    assert [text.startswith(expected) for text in found] == ([True] if unreachable else [])


def test_the_name_of_a_node_pool_fits_into_a_label():
    assert messages(pool("a" * 63)) == []
    assert "has 64 characters, a label holds 63" in messages(pool("a" * 64))[0]


@pytest.mark.parametrize(
    ("image", "replicas", "expected"),
    [
        ("registry.k8s.io/autoscaling/cluster-autoscaler:v1.33.0", 1, 1),
        ("registry.k8s.io/autoscaling/cluster-autoscaler@sha256:00", None, 1),
        ("registry.k8s.io/autoscaling/cluster-autoscaler:v1.33.0", 0, 0),
        ("public.ecr.aws/aws-ec2/aws-node-termination-handler:v1", 1, 1),
        ("registry.k8s.io/descheduler/descheduler:v1", 1, 1),
        ("example.com/my-cluster-autoscaler-dashboard", 1, 0),
    ],
)
def test_controllers_that_act_on_the_same_nodes_are_named(image, replicas, expected):
    spec = {"template": {"spec": {"containers": [{"image": image}]}}}
    item = {
        "metadata": {"namespace": "kube-system", "name": "scaler"},
        "spec": spec if replicas is None else {**spec, "replicas": replicas},
    }

    found = [finding.message for finding in controller_findings([item])]

    assert len(found) == expected
    assert all(text.endswith(" runs in kube-system/scaler") for text in found)
