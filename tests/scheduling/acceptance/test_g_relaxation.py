"""Cases 118 to 129: what is given up when not everything can be had, and in which order."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import HOSTNAME, INSTANCE_TYPE, ZONE
from karpenter_core.api.records import Taint
from karpenter_core.api.storage_records import PersistentVolumeClaimView, PersistentVolumeView
from karpenter_core.scheduling.problem import PreferencePolicy
from karpenter_core.testing.builders import node_term, preferred_node_term, requirement_spec
from tests.scheduling.acceptance.catalogues import default_pool
from tests.scheduling.acceptance.workloads import claimed, spread, term, wish

FOO, BAR = {"app": "foo"}, {"app": "bar"}
INVALID = (ZONE, "In", "invalid")


def two_zones():
    return default_pool(requirements=[requirement_spec(ZONE, "In", "z1", "z2")])


def test_case_118_a_single_required_term_stays(cluster):
    pod = cluster.pod(required=[node_term(INVALID)])
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def test_case_119_required_terms_are_alternatives_in_their_order(cluster):
    terms = [INVALID, INVALID, (ZONE, "In", "z1"), (ZONE, "In", "z2")]
    pod = cluster.pod(required=[node_term(item) for item in terms])
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] == "z1"


def test_case_120_all_preferred_terms_can_be_relaxed(cluster):
    pod = cluster.pod(
        preferred=[
            preferred_node_term(1, INVALID),
            preferred_node_term(1, (INSTANCE_TYPE, "In", "invalid")),
        ]
    )
    cluster.provision(pod)
    assert cluster.is_scheduled(pod)


def test_case_121_the_heaviest_preference_that_can_be_met_decides(cluster):
    cluster.use(two_zones())
    pod = cluster.pod(
        preferred=[
            preferred_node_term(100, (INSTANCE_TYPE, "In", "unknown")),
            preferred_node_term(50, (ZONE, "In", "z2")),
            preferred_node_term(1, (ZONE, "In", "z1")),
        ]
    )
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] == "z2"


def test_case_122_a_preference_against_a_requirement(cluster):
    cluster.use(two_zones())
    pod = cluster.pod(
        where=[(ZONE, "In", "z1", "z2")],
        preferred=[preferred_node_term(1, (ZONE, "In", "z3"))],
    )
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] in {"z1", "z2"}


def test_case_122_a_preference_that_contradicts_itself(cluster):
    pod = cluster.pod(
        preferred=[preferred_node_term(1, (ZONE, "In", "invalid"), (ZONE, "NotIn", "invalid"))]
    )
    cluster.provision(pod)
    assert cluster.is_scheduled(pod)


def hopeful(cluster):
    return cluster.pod(
        preferred=[
            preferred_node_term(1, INVALID),
            preferred_node_term(1, (INSTANCE_TYPE, "In", "invalid")),
        ]
    )


def test_case_123_a_soft_taint_is_tolerated_after_the_preferences_went(cluster):
    cluster.use(default_pool(taints=["foo=bar:PreferNoSchedule"]))
    pod = hopeful(cluster)
    cluster.provision(pod)
    soft = Taint(key="foo", value="bar", effect="PreferNoSchedule")
    assert soft in cluster.node_of(pod).taints


def test_case_124_a_softly_tainted_pool_is_not_chosen_when_another_will_do(cluster):
    tainted = default_pool("tainted", taints=["foo=bar:PreferNoSchedule"])
    cluster.use(tainted, default_pool("plain"))
    pods = [cluster.pod(), hopeful(cluster)]
    cluster.provision(*pods)
    assert cluster.pools_of(pods) == {"plain"}


def ignoring(cluster):
    cluster.configure(preferences=PreferencePolicy.IGNORE)


def two_zones_of_pods(cluster):
    """Make a pod in z1 whose node has room to spare, and two in z2 whose nodes have not."""
    only = requirement_spec(INSTANCE_TYPE, "In", "default-instance-type")
    cluster.use(default_pool(requirements=[only]))
    one = cluster.pod(labels=FOO, node_selector={ZONE: "z1"}, cpu="2")
    two = cluster.pods(2, labels=BAR, node_selector={ZONE: "z2"}, cpu="3")
    return one, two


@pytest.mark.parametrize(
    ("policy", "zone", "nodes"),
    [(PreferencePolicy.IGNORE, "z1", 3), (PreferencePolicy.RESPECT, "z2", 4)],
)
def test_case_125_an_ignored_node_preference_does_not_choose_the_node(cluster, policy, zone, nodes):
    cluster.configure(preferences=policy)
    one, two = two_zones_of_pods(cluster)
    pod = cluster.pod(cpu="1", preferred=[preferred_node_term(1, (ZONE, "In", "z2"))])
    cluster.provision(one, *two, pod)
    assert cluster.is_scheduled(one, *two, pod)
    assert cluster.labels_of(pod)[ZONE] == zone
    assert len(cluster.nodes) == nodes


def test_case_125_an_impossible_preference_is_not_even_tried(cluster):
    ignoring(cluster)
    pod = hopeful(cluster)
    cluster.provision(pod)
    assert cluster.is_scheduled(pod)


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
def test_case_126_an_ignored_soft_spread_does_not_separate_pods(cluster, key):
    ignoring(cluster)
    pods = cluster.pods(5, labels=FOO, spread=[spread(key, of=FOO, soft=True)])
    cluster.provision(*pods)
    assert len({cluster.node_of(pod).name for pod in pods}) == 1


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
def test_case_127_ignored_anti_affinity_does_not_separate_pods(cluster, key):
    ignoring(cluster)
    pods = cluster.pods(5, labels=FOO, wish_away=[wish(1, term(FOO, key))])
    cluster.provision(*pods)
    assert len({cluster.node_of(pod).name for pod in pods}) == 1


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
def test_case_127_ignored_affinity_does_not_draw_pods_together(cluster, key):
    ignoring(cluster)
    one, two = two_zones_of_pods(cluster)
    pod = cluster.pod(cpu="1", wish_near=[wish(1, term(BAR, key))])
    cluster.provision(one, *two, pod)
    assert cluster.is_scheduled(one, *two, pod)
    assert cluster.node_of(pod).name == cluster.node_of(one).name


@pytest.mark.parametrize("policy", [PreferencePolicy.IGNORE, PreferencePolicy.RESPECT])
@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
def test_case_128_an_unmet_preference_does_not_cost_a_node(cluster, key, policy):
    cluster.configure(preferences=policy)
    one = cluster.pod(labels=FOO, cpu="2")
    two = cluster.pod(cpu="1", preferred=[preferred_node_term(1, (key, "In", "value-1"))])
    cluster.provision(one, two)
    assert cluster.is_scheduled(one, two)
    assert cluster.node_of(one).name == cluster.node_of(two).name


def test_case_129_the_zone_of_a_volume_is_never_given_up(cluster):
    cluster.apply(
        PersistentVolumeView(uid="pv", name="pv", node_terms=(node_term((ZONE, "In", "z3")),)),
        PersistentVolumeClaimView(
            uid="pvc", namespace="default", name="pvc", volume_name="pv", bind_completed=True
        ),
    )
    arch = ("kubernetes.io/arch", "In", "amd64")
    pod = cluster.pod(
        volumes=[claimed("data", "pvc")],
        required=[
            node_term((INSTANCE_TYPE, "In", "invalid")),
            node_term(arch),
            node_term((ZONE, "In", "z1", "z3")),
        ],
    )
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] == "z3"
