"""Each change but of pods makes new what-ifs: questions are kept for no other one.

The tests name every field, so that a new one must be thought of.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from karpenter_core.api.labels import HOSTNAME
from karpenter_core.api.records import HostPort
from karpenter_core.scheduling.problem import (
    DaemonPod,
    ExistingNode,
    LaunchQuota,
    PodVolumes,
    SchedulingProblem,
)
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.whatif.base_state import _differ_in_pods
from karpenter_core.scheduling.whatif.what_if_cluster import (
    WhatIfCluster,
    _are_equal_volumes,
    _is_same_frame,
)
from karpenter_core.testing.builders import (
    catalogue,
    existing_node,
    instance_type,
    node_pool,
    pod,
    pod_shape,
    problem,
    taint,
)
from tests.scheduling.devices.builders import inventory

QUOTA = LaunchQuota(name="team", requirements=Requirements(), limits={"cpu": 1})
OTHER_FRAMES = {
    "pools": (node_pool(),),
    "catalogues": {"default": catalogue(instance_type("small"))},
    "daemons": (DaemonPod(name="agent", shape=pod_shape()),),
    "well_known": frozenset({"example.com/size"}),
    "aliases": {"example.com/size": "size"},
    "namespaces": {"web": {"team": "a"}},
    "max_new_nodes": 3,
    "quotas": (QUOTA,),
    "commitments": (object(),),
    "devices": inventory(),
    "is_unnominated": True,
}
"""Another value of each field of a problem."""
OF_PODS = {"pods", "nodes", "pool_usage", "volumes", "covered_pods"}
"""Fields that are compared for themselves, or are in the nodes already."""


def test_every_field_of_a_problem_is_compared_or_about_pods():
    assert {each.name for each in fields(SchedulingProblem)} == OTHER_FRAMES.keys() | OF_PODS


@pytest.mark.parametrize("field", OTHER_FRAMES)
def test_a_problem_with_another_value_is_another_one(field):
    asked = problem([], pools=[node_pool("web")])
    other = replace(asked, **{field: OTHER_FRAMES[field]})
    assert _is_same_frame(asked, replace(asked))
    assert not _is_same_frame(asked, other)
    assert not _is_same_frame(other, asked)


def test_a_catalogue_more_is_another_problem():
    asked = problem([], pools=[node_pool("web")])
    more = {**asked.catalogues, "other": catalogue(instance_type("small"))}
    assert not _is_same_frame(asked, replace(asked, catalogues=more))


OTHER_NODES = {
    "labels": {HOSTNAME: "other"},
    "taints": (taint("dedicated=gpu:NoSchedule"),),
    "capacity": {"cpu": 1},
    "initialized": False,
    "pool": "other",
    "requirements": Requirements(),
    "volume_limits": {"csi": 3},
    "volumes": {"csi": frozenset({"web/data"})},
    "closed": True,
    "claim_name": "other",
    "node_name": "other",
    "is_planned": True,
}
"""Another value of each field of a node."""
TAKEN_BY_PODS = {
    "available": {"cpu": 1},
    "pods": (pod("web"),),
    "host_ports": (HostPort(port=80, protocol="TCP", ip=""),),
}


def test_every_field_of_a_node_is_compared_or_taken_by_pods():
    named = OTHER_NODES.keys() | TAKEN_BY_PODS.keys()
    assert {each.name for each in fields(ExistingNode)} == named | {"name"}


@pytest.mark.parametrize("field", OTHER_NODES)
def test_a_node_with_another_value_is_another_one(field):
    node = existing_node("n", pool="web")
    assert not _differ_in_pods(node, replace(node, **{field: OTHER_NODES[field]}))


@pytest.mark.parametrize("field", TAKEN_BY_PODS)
def test_a_node_with_other_pods_is_the_same(field):
    node = existing_node("n", pool="web")
    assert _differ_in_pods(node, replace(node, **{field: TAKEN_BY_PODS[field]}))


ATTACHED = {"csi": frozenset({"web/data"})}
ZONES = (Requirements.from_labels({"zone": "a"}),)


@pytest.mark.parametrize(
    ("volumes", "is_same"),
    [
        (PodVolumes(alternatives=ZONES, attached=ATTACHED), True),
        (PodVolumes(alternatives=ZONES), False),
        (PodVolumes(attached=ATTACHED), False),
    ],
)
def test_volumes_are_equal_in_all_that_they_require(volumes, is_same):
    known = {"uid": PodVolumes(alternatives=ZONES, attached=ATTACHED)}
    assert _are_equal_volumes(known, known)
    assert _are_equal_volumes(known, {"uid": volumes}) is is_same
    assert not _are_equal_volumes(known, {"uid": known["uid"], "more": volumes})
    assert not _are_equal_volumes(known, {})


def test_clusters_with_other_usage_nodes_or_volumes_are_others():
    asked = problem([pod("web")], nodes=[existing_node("n")], pools=[node_pool("web")])
    cluster = WhatIfCluster(asked, {})

    def is_kept(**changes):
        return cluster.differs_in_pods(WhatIfCluster(replace(asked, **changes), {}))

    assert is_kept()
    assert is_kept(pods=())
    assert not is_kept(pool_usage={"web": {"cpu": 1}})
    assert not is_kept(nodes=(existing_node("other"),))
    assert not is_kept(volumes={"uid": PodVolumes(attached=ATTACHED)})
    assert not is_kept(max_new_nodes=1)
