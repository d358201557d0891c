"""Cases 215 to 250: topology spread."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.api.storage_records import PersistentVolumeClaimView, PersistentVolumeView
from karpenter_core.testing.builders import (
    node_pool,
    node_term,
    preferred_node_term,
    requirement_spec,
)
from tests.scheduling.acceptance.catalogues import assorted_types
from tests.scheduling.acceptance.workloads import TEST, claimed, selector, spread

ROOMY = {"cpu": "1100m"}
"""No second one of these shares a small node, and no more than three a default one."""


def pool(*requirements, name="default", **options):
    return node_pool(
        name,
        requirements=[*requirements] or [(CAPACITY_TYPE, "Exists")],
        **{"limits": {"cpu": "2000"}, **options},
    )


def zonal(*zones, **options):
    return pool((ZONE, "In", *zones), **options)


def capacity(*kinds, **options):
    return pool((CAPACITY_TYPE, "In", *kinds), **options)


@pytest.fixture
def cluster(empty_cluster):
    """A cluster with a pool of every capacity type."""
    empty_cluster.apply(pool())
    return empty_cluster


def submit(cluster, number, *rules, **options):
    """Create pods that are labelled and spread alike, and make one pass."""
    pods = cluster.pods(number, labels=TEST, spread=rules, **options)
    cluster.provision(*pods)
    return pods


def test_case_215_an_unknown_topology_key(cluster):
    pods = [cluster.pod(labels=TEST, spread=[spread("unknown")]), cluster.pod()]
    cluster.provision(*pods)
    assert cluster.is_unscheduled(pods[0])
    assert cluster.is_scheduled(pods[1])


def test_case_216_without_a_selector_nothing_is_spread(cluster):
    submit(cluster, 2, spread(ZONE, of=None))
    assert cluster.skew(ZONE) == [2]


def test_case_216_an_invalid_selector_spreads_nothing(cluster):
    invalid = selector({"app.kubernetes.io/name": "{{ zqfmgb }}"})
    submit(cluster, 2, spread(ZONE, of=invalid))
    assert cluster.skew(ZONE) == [2]


@pytest.mark.parametrize(
    "of", [TEST, selector(None, ("test", "In", "test"))], ids=["labels", "expressions"]
)
def test_case_217_pods_are_balanced_across_zones(cluster, of):
    submit(cluster, 4, spread(ZONE, of=of))
    assert cluster.skew(ZONE) == [1, 1, 2]


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([zonal("z1", "z2", "z3")], [1, 1, 2]),
        ([zonal("z1", "z2")], [2, 2]),
        ([pool(labels={ZONE: "z1"})], [4]),
        ([zonal("z1", "z2", labels={ZONE: "z1"})], [4]),
    ],
    ids=["all", "two", "label", "label of two"],
)
def test_case_218_only_zones_of_the_pool_are_counted(cluster, pools, expected):
    cluster.use(*pools)
    submit(cluster, 4, spread(ZONE))
    assert cluster.skew(ZONE) == expected


def test_case_219_two_pools_of_one_zone_each(cluster):
    cluster.use(zonal("z1", "z2", labels={ZONE: "z1"}), pool(name="second", labels={ZONE: "z2"}))
    submit(cluster, 4, spread(ZONE))
    assert cluster.skew(ZONE) == [2, 2]


def test_case_220_a_pod_in_a_zone_that_the_pool_has_left(cluster):
    pod = cluster.pod(labels=TEST, node_selector={ZONE: "z3"}, **ROOMY)
    cluster.provision(pod)
    cluster.use(zonal("z1", "z2"))
    pods = submit(cluster, 6, spread(ZONE), **ROOMY)
    assert cluster.skew(ZONE) == [1, 2, 2]
    assert len(cluster.scheduled(pods)) == 4


def test_case_221_a_zone_that_is_not_the_emptiest_if_it_is_the_only_one(cluster):
    rule = spread(ZONE, 5)
    for zone, expected in (("z1", [1]), ("z2", [1, 1])):
        cluster.use(zonal(zone))
        submit(cluster, 1, rule, **ROOMY)
        assert cluster.skew(ZONE) == expected
    cluster.use(zonal("z3"))
    submit(cluster, 10, rule, **ROOMY)
    assert cluster.skew(ZONE) == [1, 1, 6]


def test_case_222_a_skew_that_is_there_is_made_up_for(cluster):
    pods = submit(cluster, 9, spread(ZONE), **ROOMY)
    assert cluster.skew(ZONE) == [3, 3, 3]
    cluster.evict(*(pod for pod in pods if cluster.labels_of(pod)[ZONE] != "z1"))
    assert cluster.skew(ZONE) == [3]
    submit(cluster, 3, spread(ZONE), **ROOMY)
    assert cluster.skew_by_value(ZONE)["z1"] == 3
    assert cluster.skew(ZONE) == [1, 2, 3]


@pytest.mark.parametrize("constrained", [True, False])
def test_case_223_the_skew_is_never_exceeded(cluster, constrained):
    cluster.use(zonal("z1"))
    submit(cluster, 1, *[spread(ZONE)][: int(constrained)], **ROOMY)
    cluster.use(zonal("z2", "z3"))
    submit(cluster, 10, spread(ZONE), **ROOMY)
    assert cluster.skew(ZONE) == [1, 2, 2]


def noise(cluster, key, first, second):
    """Bind two pods in one domain and one in another, and add pods that do not count."""
    cluster.apply(
        cluster.node("first", labels={key: first}),
        cluster.node("second", labels={key: second}),
        cluster.node("third"),
    )
    going = {"deletion_timestamp": cluster.now}
    pods = [
        *cluster.pods(1, node_name="first"),
        *cluster.pods(1, labels=TEST, unschedulable=False),
        *cluster.pods(1, labels=TEST, node_name="third"),
        *cluster.pods(1, labels=TEST, node_name="first", namespace="wrong"),
        *cluster.pods(1, labels=TEST, node_name="second", **going),
        *cluster.pods(1, labels=TEST, node_name="first", phase="Failed"),
        *cluster.pods(1, labels=TEST, node_name="first", phase="Succeeded"),
        *cluster.pods(2, labels=TEST, node_name="first"),
        *cluster.pods(1, labels=TEST, node_name="second"),
    ]
    cluster.apply(*pods)


def test_case_224_only_running_pods_in_a_domain_count(cluster):
    noise(cluster, ZONE, "z1", "z2")
    submit(cluster, 2, spread(ZONE))
    assert cluster.skew(ZONE) == [1, 2, 2]


@pytest.mark.parametrize("key", [ZONE, CAPACITY_TYPE])
def test_case_225_one_pod_whose_constraint_selects_nothing(cluster, key):
    submit(cluster, 1, spread(key, of=None))
    assert cluster.skew(key) == [1]


def test_case_226_pods_that_their_own_constraint_does_not_select(cluster):
    pods = cluster.pods(5, spread=[spread(HOSTNAME)])
    cluster.provision(*pods)
    assert len({cluster.node_of(pod).name for pod in pods}) == 1


def test_case_227_too_few_domains(cluster):
    cluster.use(zonal("z1", "z2"))
    pods = submit(cluster, 3, spread(ZONE, min_domains=3))
    assert cluster.skew(ZONE) == [1, 1]
    assert len(cluster.scheduled(pods)) == 2


@pytest.mark.parametrize("domains", [2, 3])
def test_case_227_domains_enough(cluster, domains):
    cluster.use(zonal("z1", "z2", "z3"))
    submit(cluster, 11, spread(ZONE, min_domains=domains))
    assert cluster.skew(ZONE) == [3, 4, 4]


@pytest.mark.parametrize(("max_skew", "expected"), [(1, [1, 1, 1, 1]), (4, [4])])
def test_case_228_hostnames(cluster, max_skew, expected):
    submit(cluster, 4, spread(HOSTNAME, max_skew))
    assert cluster.skew(HOSTNAME) == expected


@pytest.mark.parametrize(
    ("arches", "nodes"), [((None, None), 2), (("amd64", "arm64"), 4)], ids=["one", "two"]
)
def test_case_229_two_deployments_on_different_hosts(cluster, arches, nodes):
    pods = []
    for name, arch in zip(("app1", "app2"), arches, strict=True):
        app = {"app": name}
        where = [(ARCH, "In", arch)] if arch else ()
        pods += cluster.pods(2, labels=app, where=where, spread=[spread(HOSTNAME, of=app)])
    cluster.provision(*pods)
    assert cluster.is_scheduled(*pods)
    assert len(cluster.nodes) == nodes


@pytest.mark.parametrize("explicit", [True, False])
def test_case_230_capacity_types(cluster, explicit):
    if explicit:
        cluster.use(capacity("spot", "on-demand"))
    submit(cluster, 4, spread(CAPACITY_TYPE))
    assert cluster.skew(CAPACITY_TYPE) == [2, 2]


@pytest.mark.parametrize(("soft", "expected"), [(False, [1, 2]), (True, [1, 5])])
def test_case_231_a_capacity_type_that_the_pool_has_left(cluster, soft, expected):
    rule = spread(CAPACITY_TYPE, soft=soft)
    cluster.use(capacity("spot"))
    submit(cluster, 1, rule, **ROOMY)
    assert cluster.skew(CAPACITY_TYPE) == [1]
    cluster.use(capacity("on-demand"))
    submit(cluster, 5, rule, **ROOMY)
    assert cluster.skew(CAPACITY_TYPE) == expected


def test_case_232_only_running_pods_of_a_capacity_type_count(cluster):
    noise(cluster, CAPACITY_TYPE, "spot", "on-demand")
    submit(cluster, 2, spread(CAPACITY_TYPE))
    assert cluster.skew(CAPACITY_TYPE) == [2, 3]


def test_case_233_nodes_that_the_affinity_excludes_do_not_count(cluster):
    where = [(ZONE, "In", "z1"), (CAPACITY_TYPE, "In", "on-demand")]
    cluster.provision(cluster.pod(labels=TEST, where=where))
    where = [(ZONE, "In", "z2"), (CAPACITY_TYPE, "In", "spot")]
    submit(cluster, 5, spread(CAPACITY_TYPE), where=where)
    assert cluster.skew(CAPACITY_TYPE) == [1, 5]


@pytest.mark.parametrize(
    ("key", "first", "then"), [(CAPACITY_TYPE, "on-demand", "spot"), (ARCH, "amd64", "arm64")]
)
def test_case_234_existing_pods_count_without_affinity(cluster, key, first, then):
    single = {INSTANCE_TYPE: "single-pod-instance-type"}
    pod = cluster.pod(labels=TEST, node_selector=single, where=[(key, "In", first)])
    cluster.provision(pod)
    assert cluster.labels_of(pod)[key] == first
    cluster.use(pool((key, "In", then)))
    submit(cluster, 5, spread(key), cpu="2")
    assert cluster.skew(key) == [1, 2]


def test_case_235_zone_and_hostname(cluster):
    rules = [spread(ZONE), spread(HOSTNAME, 3)]
    for number, expected in ((2, [1, 1]), (3, [1, 2, 2]), (5, [3, 3, 4]), (11, [7, 7, 7])):
        pods = submit(cluster, number, *rules)
        assert cluster.is_scheduled(*pods)
        assert cluster.skew(ZONE) == expected
        assert max(cluster.skew(HOSTNAME)) <= 3


def test_case_236_a_label_of_two_pools_divides_pods_between_them(cluster):
    ratio = "capacity.spread.4-1"
    cluster.use(
        pool((CAPACITY_TYPE, "In", "spot"), (ratio, "In", "2", "3", "4", "5"), name="spot"),
        pool((CAPACITY_TYPE, "In", "on-demand"), (ratio, "In", "1"), name="on-demand"),
    )
    pods = submit(cluster, 20, spread(ratio))
    assert cluster.is_scheduled(*pods)
    assert cluster.skew(ratio) == [4] * 5
    assert cluster.skew(CAPACITY_TYPE) == [4, 16]


def test_case_237_a_zone_of_a_pool_at_its_limit_still_counts(cluster):
    cluster.use(zonal("z1", "z2"), zonal("z3", name="second", limits={"cpu": "0"}))
    submit(cluster, 10, spread(ZONE), spread(HOSTNAME, soft=True))
    assert cluster.skew(ZONE) == [1, 1]
    assert cluster.skew(HOSTNAME) == [1, 1]


def test_case_238_capacity_type_and_hostname(cluster):
    rules = [spread(CAPACITY_TYPE), spread(HOSTNAME, 3)]
    for number, expected in ((2, [1, 1]), (3, [2, 3]), (5, [5, 5]), (11, [10, 11])):
        pods = submit(cluster, number, *rules)
        assert cluster.is_scheduled(*pods)
        assert cluster.skew(CAPACITY_TYPE) == expected
        assert max(cluster.skew(HOSTNAME)) <= 3


def test_case_239_revisions_are_counted_separately_by_a_label_key(cluster):
    rule = spread(HOSTNAME, label_keys=["test-label"])
    pods = [
        pod
        for value in ("value-a", "value-b")
        for pod in cluster.pods(2, labels={**TEST, "test-label": value}, spread=[rule])
    ]
    cluster.provision(*pods)
    assert cluster.skew(HOSTNAME) == [2, 2]


def test_case_239_a_label_key_that_pods_lack_is_ignored(cluster):
    submit(cluster, 4, spread(HOSTNAME, label_keys=["test-label"]))
    assert cluster.skew(HOSTNAME) == [1, 1, 1, 1]


FAKE = "fake-label"
TAINTED = ("taintname=taintvalue:NoSchedule",)


@pytest.mark.parametrize(("policy", "expected"), [("Ignore", [1]), ("Honor", [5])])
def test_case_240_nodes_whose_taints_are_not_tolerated(cluster, policy, expected):
    cluster.use(pool(labels={FAKE: "baz"}))
    for name in ("foo", "bar"):
        cluster.apply(
            cluster.node(name, labels={FAKE: name}, taints=TAINTED, allocatable={"cpu": "100m"})
        )
    submit(cluster, 5, spread(FAKE, node_taints=policy), cpu="1")
    assert cluster.skew(FAKE) == expected
    assert cluster.skew_by_value(FAKE).keys() == {"baz"}


@pytest.mark.parametrize(("policy", "expected"), [("Ignore", [1]), ("Honor", [2])])
def test_case_241_domains_of_a_pool_whose_taints_are_not_tolerated(cluster, policy, expected):
    cluster.use(
        pool((FAKE, "In", "foo")), pool((FAKE, "In", "bar"), name="tainted", taints=TAINTED)
    )
    submit(cluster, 2, spread(FAKE, node_taints=policy))
    assert cluster.skew(FAKE) == expected
    assert cluster.skew_by_value(FAKE).keys() == {"foo"}


def test_case_242_pools_that_exclude_each_other_share_a_domain(cluster):
    cluster.use(
        *(
            pool((FAKE, "In", "foo", own), name=name, taints=[f"taint-key={name}:NoSchedule"])
            for name, own in (("nodepool-0", "bar"), ("nodepool-1", "baz"))
        )
    )
    rule = spread(FAKE, node_taints="Honor")
    pods = [
        pod
        for name, number in (("nodepool-0", 2), ("nodepool-1", 4))
        for pod in cluster.pods(
            number, labels=TEST, spread=[rule], tolerations=[f"taint-key={name}:NoSchedule"]
        )
    ]
    cluster.provision(*pods)
    assert cluster.skew(FAKE) == [1, 2, 3]
    assert cluster.skew_by_value(FAKE)["bar"] == 1


@pytest.mark.parametrize(("policy", "expected"), [("Ignore", [1]), ("Honor", [5])])
def test_case_243_nodes_that_the_pods_do_not_select(cluster, policy, expected):
    cluster.use(pool(labels={FAKE: "baz", "selector": "value"}))
    for name in ("foo", "bar"):
        labels = {FAKE: name, "selector": "mismatch"}
        cluster.apply(cluster.node(name, labels=labels, allocatable={"cpu": "100m"}))
    rule = spread(FAKE, node_affinity=policy)
    submit(cluster, 5, rule, cpu="1", node_selector={"selector": "value"})
    assert cluster.skew(FAKE) == expected
    assert cluster.skew_by_value(FAKE).keys() == {"baz"}


def test_case_244_capacity_type_and_zone(cluster):
    """No type is sold as spot in z3, so the two constraints get into each other's way."""
    rules = [spread(CAPACITY_TYPE), spread(ZONE)]
    for number, of_type, of_zone in ((2, 1, 1), (3, 3, 2), (3, 5, 4), (11, 11, 7)):
        submit(cluster, number, *rules)
        assert max(cluster.skew(CAPACITY_TYPE)) <= of_type
        assert max(cluster.skew(ZONE)) <= of_zone


def difference(counts):
    return counts[-1] - counts[0]


def test_case_245_capacity_type_zone_and_hostname(cluster):
    cluster.use(pool(), types=assorted_types())
    rules = [spread(CAPACITY_TYPE), spread(ZONE, 2), spread(HOSTNAME, 3)]
    for number in range(1, 15):
        pods = submit(cluster, number, *rules)
        assert cluster.is_scheduled(*pods)
        assert difference(cluster.skew(CAPACITY_TYPE)) <= 1
        assert difference(cluster.skew(ZONE)) <= 2
        assert difference(cluster.skew(HOSTNAME)) <= 3


def test_case_246_a_node_selector_limits_the_counted_domains(cluster):
    pods = [
        pod
        for zone, number in (("z1", 5), ("z2", 10))
        for pod in cluster.pods(
            number, labels=TEST, spread=[spread(ZONE)], node_selector={ZONE: zone}
        )
    ]
    cluster.provision(*pods)
    assert cluster.skew_by_value(ZONE) == {"z1": 5, "z2": 10}


def test_case_246_a_node_requirement_limits_the_counted_domains(cluster):
    submit(cluster, 10, spread(ZONE), where=[(ZONE, "In", "z1", "z2")])
    assert cluster.skew(ZONE) == [5, 5]


@pytest.mark.parametrize("zone", ["z1", "z2", "z3"])
def test_case_246_a_pod_for_any_one_zone(cluster, zone):
    submit(cluster, 1, spread(ZONE), node_selector={ZONE: zone})
    assert cluster.skew_by_value(ZONE) == {zone: 1}


def test_case_247_required_affinity_limits_the_counted_domains(cluster):
    submit(cluster, 6, spread(ZONE), where=[(ZONE, "In", "z1", "z2")])
    assert cluster.skew(ZONE) == [3, 3]
    cluster.use(zonal("z1", "z2", "z3"))
    submit(cluster, 1, spread(ZONE), where=[(ZONE, "In", "z2", "z3")])
    assert cluster.skew(ZONE) == [1, 3, 3]
    submit(cluster, 5, spread(ZONE))
    assert cluster.skew(ZONE) == [4, 4, 4]


def test_case_248_preferred_affinity_does_not_limit_the_counted_domains(cluster):
    wish = preferred_node_term(1, (ZONE, "In", "z1", "z2"))
    submit(cluster, 6, spread(ZONE), preferred=[wish])
    assert cluster.skew(ZONE) == [2, 2, 2]


def test_case_249_soft_spread_within_selectors(cluster):
    rule = spread(CAPACITY_TYPE, soft=True)
    pods = [
        pod
        for kind in ("spot", "on-demand")
        for pod in cluster.pods(5, labels=TEST, spread=[rule], node_selector={CAPACITY_TYPE: kind})
    ]
    cluster.provision(*pods)
    assert cluster.skew(CAPACITY_TYPE) == [5, 5]


def test_case_249_required_affinity_to_capacity_types(cluster):
    rule = spread(CAPACITY_TYPE)
    submit(cluster, 3, rule, where=[(CAPACITY_TYPE, "In", "spot")])
    assert cluster.skew(CAPACITY_TYPE) == [3]
    submit(cluster, 1, rule, where=[(CAPACITY_TYPE, "In", "on-demand", "spot")])
    assert cluster.skew(CAPACITY_TYPE) == [1, 3]
    submit(cluster, 5, rule)
    assert cluster.skew(CAPACITY_TYPE) == [4, 5]


def test_case_250_the_zone_of_a_volume_does_not_limit_the_counted_domains(cluster):
    cluster.use(capacity("on-demand"))
    cluster.apply(
        PersistentVolumeView(uid="pv", name="pv", node_terms=(node_term((ZONE, "In", "z1")),)),
        PersistentVolumeClaimView(
            uid="pvc", namespace="default", name="pvc", volume_name="pv", bind_completed=True
        ),
    )
    rule = spread(ZONE, min_domains=3)
    submit(cluster, 3, rule)
    assert cluster.skew(ZONE) == [1, 1, 1]
    (pod,) = submit(cluster, 1, rule, volumes=[claimed("data", "pvc")])
    assert cluster.labels_of(pod)[ZONE] == "z1"
    assert cluster.skew_by_value(ZONE) == {"z1": 2, "z2": 1, "z3": 1}


def test_case_217_a_pool_of_its_own_can_be_a_domain(cluster):
    """Any label of the pools makes domains, also the one that names the pool."""
    cluster.use(pool(name="first"), pool(name="second"))
    submit(cluster, 4, spread(NODE_POOL))
    assert cluster.skew(NODE_POOL) == [2, 2]


def test_case_218_requirements_of_one_pool_given_as_specs(cluster):
    """A zone in a requirement that excludes the others narrows the domains as `In` does."""
    cluster.use(pool(requirement_spec(ZONE, "NotIn", "z3")))
    submit(cluster, 4, spread(ZONE))
    assert cluster.skew(ZONE) == [2, 2]
