"""Pods mix freely on nodes unless one of their steps counts pods of a zone or a node."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, HOSTNAME, ZONE
from karpenter_core.api.records import HostPort, WeightedAffinityTerm
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.placement.free_group_placement import free_groups
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.testing.builders import preferred_node_term, problem
from tests.scheduling.handmade_plans import pod, spread, term


def groups_of(*waiting):
    """Return the groups, each as the number of its classes."""
    compiled = run_steps(compile_steps(problem(waiting), SolveOptions(), CatalogueCache()))
    return [len(group) for group in free_groups(compiled, range(len(compiled.classes)))]


def preferred(key):
    return (WeightedAffinityTerm(weight=1, term=term(key)[0]),)


@pytest.mark.parametrize(
    ("constraints", "is_free"),
    [
        ({}, True),
        ({"node_selector": {ZONE: "zone-a"}}, True),
        ({"preferred_node_terms": (preferred_node_term(1, (ZONE, "In", "zone-a")),)}, True),
        ({"topology_spread": spread(ZONE)}, False),
        ({"topology_spread": spread(HOSTNAME)}, False),
        ({"topology_spread": spread(CAPACITY_TYPE)}, False),
        ({"topology_spread": spread(ZONE, hard=False)}, False),
        ({"topology_spread": spread(HOSTNAME, hard=False)}, False),
        ({"preferred_pod_affinity": preferred(ZONE)}, False),
        ({"preferred_pod_anti_affinity": preferred(HOSTNAME)}, False),
        ({"pod_affinity": term(ZONE)}, False),
        ({"pod_anti_affinity": term(HOSTNAME)}, False),
        ({"host_ports": (HostPort(port=80),)}, False),
    ],
    ids=str,
)
def test_a_pod_mixes_freely_if_none_of_its_steps_counts_others(constraints, is_free):
    """A preference is kept while it can be: its first step counts, though its last does not."""
    assert groups_of(pod("web-0", **constraints)) == [1] * is_free


def test_pods_of_equal_constraints_are_one_group_and_others_another():
    small, large = {"cpu": 100, "pods": 1}, {"cpu": 2000, "pods": 1}
    waiting = [
        pod("a", requests=small),
        pod("b", requests=large),
        pod("c", requests=small, node_selector={ZONE: "zone-a"}),
    ]
    assert sorted(groups_of(*waiting)) == [1, 2]
