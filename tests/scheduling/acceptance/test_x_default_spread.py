"""Cases 343 to 346: topology spread out of the scheduler's configuration, as it ends in nodes."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, HOSTNAME, ZONE
from karpenter_core.api.workload_records import ServiceView, WorkloadView
from karpenter_core.testing.builders import node_pool
from tests.scheduling.acceptance.workloads import selector, spread

WEB = {"app": "web"}
ZONAL = spread(ZONE, of=None)
SOFT = spread(ZONE, of=None, soft=True)
HOSTS = spread(HOSTNAME, of=None)


def pool(*zones):
    """Make a pool, of these zones if any."""
    where = [(ZONE, "In", *zones)] if zones else []
    return node_pool(requirements=[(CAPACITY_TYPE, "Exists"), *where], limits={"cpu": "2000"})


@pytest.fixture
def cluster(empty_cluster):
    """A cluster with a pool of every capacity type."""
    empty_cluster.apply(pool())
    return empty_cluster


def replica_set(name="web", labels=None):
    """Make a ReplicaSet that selects pods with these labels."""
    return WorkloadView(
        kind="ReplicaSet",
        uid=f"uid-rs-{name}",
        namespace="default",
        name=name,
        selector=selector(labels or WEB),
    )


def replicas(cluster, number, of="web", labels=None, **options):
    return cluster.pods(number, labels=labels or WEB, owner_name=of, **options)


@pytest.mark.parametrize(
    ("default", "key", "number", "expected"),
    [(ZONAL, ZONE, 4, [1, 1, 2]), (HOSTS, HOSTNAME, 3, [1, 1, 1])],
    ids=["zone", "hostname"],
)
def test_case_343_pods_are_spread_by_default(cluster, default, key, number, expected):
    cluster.default_spread = (default,)
    cluster.apply(replica_set())
    cluster.provision(*replicas(cluster, number))
    assert cluster.skew(key, WEB) == expected


def test_case_343_pods_with_a_constraint_of_their_own_keep_it(cluster):
    cluster.default_spread = (HOSTS,)
    cluster.apply(replica_set())
    own = spread(HOSTNAME, 3, of=WEB)
    cluster.provision(*replicas(cluster, 3, spread=[own]))
    assert cluster.skew(HOSTNAME, WEB) == [3]


def test_case_344_fewer_domains_than_the_default_requires(cluster):
    cluster.use(pool("z1", "z2"))
    cluster.default_spread = (spread(ZONE, of=None, min_domains=3),)
    cluster.apply(replica_set())
    pods = replicas(cluster, 3)
    cluster.provision(*pods)
    assert cluster.skew(ZONE, WEB) == [1, 1]
    assert len(cluster.scheduled(pods)) == 2


@pytest.mark.parametrize(("soft", "placed"), [(False, 1), (True, 3)])
def test_case_344_one_zone_only(cluster, soft, placed):
    cluster.use(pool("z1"))
    domains = None if soft else 3
    cluster.default_spread = (spread(ZONE, of=None, min_domains=domains, soft=soft),)
    cluster.apply(replica_set())
    pods = replicas(cluster, 3)
    cluster.provision(*pods)
    assert len(cluster.scheduled(pods)) == placed


@pytest.mark.parametrize(
    ("defaults", "known"), [((), True), ((HOSTS,), False)], ids=["no config", "no owner"]
)
def test_case_345_nothing_is_spread_without_configuration_or_countable_pods(
    cluster, defaults, known
):
    cluster.default_spread = defaults
    if known:
        cluster.apply(replica_set())
    cluster.provision(*replicas(cluster, 3))
    assert cluster.skew(HOSTNAME, WEB) == [3]


def test_case_346_pods_that_run_count(cluster):
    cluster.default_spread = (ZONAL,)
    cluster.apply(replica_set())
    cluster.provision(*replicas(cluster, 2, node_selector={ZONE: "z1"}))
    cluster.provision(*replicas(cluster, 4))
    assert cluster.skew(ZONE, WEB) == [2, 2, 2]


def test_case_346_workloads_are_spread_apart(cluster):
    cluster.default_spread = (ZONAL,)
    other = {"app": "other"}
    cluster.apply(replica_set(), replica_set("other", other))
    cluster.provision(*replicas(cluster, 4), *replicas(cluster, 4, of="other", labels=other))
    assert cluster.skew(ZONE, WEB) == cluster.skew(ZONE, other) == [1, 1, 2]


def test_case_346_revisions_of_one_deployment_are_spread_apart(cluster):
    cluster.default_spread = (HOSTS,)
    revisions = [{**WEB, "pod-template-hash": value} for value in ("a", "b")]
    pods = []
    for number, labels in enumerate(revisions):
        cluster.apply(replica_set(f"web-{number}", labels))
        pods += replicas(cluster, 2, of=f"web-{number}", labels=labels)
    cluster.provision(*pods)
    assert cluster.skew(HOSTNAME, WEB) == [2, 2]


def test_case_346_a_service_alone_selects_the_counted_pods(cluster):
    cluster.default_spread = (SOFT, HOSTS)
    cluster.apply(ServiceView(uid="svc", namespace="default", name="web", selector=WEB))
    cluster.provision(*replicas(cluster, 3))
    assert cluster.skew(HOSTNAME, WEB) == [1, 1, 1]
    assert cluster.skew(ZONE, WEB) == [1, 1, 1]
