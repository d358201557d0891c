"""Inputs of benchmarks have these checksums, so that results are comparable."""

import json
from hashlib import sha256

import pytest

from benchmarks import mixes
from benchmarks.inputs import load
from karpenter_core.api.quantities import parse_amount
from karpenter_core.scheduling.problem import PreferencePolicy

REFERENCE = {
    1: (500, 512, "fbfcf9f0f7d8d3d3"),
    50: (39300, 63888, "28e736426f3b0cd8"),
    100: (70650, 137892, "a0d7166f1902613c"),
    500: (324400, 676592, "5ce9cc12908595ad"),
    1000: (663350, 1341084, "cc1ba9248979f878"),
    1500: (1015400, 2071108, "b5f8d7f36ddb2c7f"),
    2000: (1319500, 2769052, "f9b5a4e4591c9e27"),
    5000: (3309000, 6708012, "4c21e72ce166a9fd"),
    10000: (6628950, 13375332, "b77b3beb7a5d56f2"),
    20000: (13399850, 26928028, "5f8dbaee853fd607"),
}
"""Pods -> total milli-CPUs, total MiB, digest: what the reference's generator of pods makes."""


def _digest(document):
    return sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize("count", REFERENCE)
def test_diverse_mix_is_the_references(count):
    assert mixes.checksum(mixes.diverse(count)) == REFERENCE[count]


def test_generated_preferences_equal_those_of_the_reference():
    pod = mixes.preferences(2)[0]

    assert (pod.cpu_milli, pod.memory_mib) == (100, 4096)


@pytest.mark.parametrize(
    ("case", "pods", "digest"),
    [
        ("diverse-500/fake400", 500, "74b9ae2d164ce74c"),
        ("generic-500/real/on-demand", 500, "c0a163d2ad9b03fe"),
        ("deployments-2000/real/daemons", 48_100, "9e2f828d012df82f"),
        ("tangled-3/real", 93, "6c08d296afe14754"),
        ("ignore-4000/fake400", 4000, "13cbe13ca6563d51"),
        ("deployments-40/real/cluster", 959, "a614638435fed6f6"),
    ],
)
def test_cases_never_change(case, pods, digest):
    asked = load(case)

    assert (len(asked.problem.pods), _digest(asked.document())) == (pods, digest)


def test_reference_catalogue_is_linear_in_price():
    types = load("diverse-1/fake400").instance_types

    assert [t.name for t in (types[0], types[-1])] == ["fake-it-0", "fake-it-399"]
    assert {len(t.offerings) for t in types} == {5}
    assert types[399].capacity == {"cpu": 400_000, "memory": 800 * 2**30, "pods": 4000}
    assert types[0].allocatable() == {"cpu": 900, "memory": 2038 * 2**20, "pods": 10}
    assert types[1].offerings[0].price.amount == pytest.approx(0.2 + 0.4294967296)


def test_realistic_catalogue_has_the_structure_of_a_clouds():
    types = load("diverse-1/real").instance_types
    offerings = [offering for t in types for offering in t.offerings]

    assert (len(types), len({t.name for t in types})) == (800, 800)
    assert {o.zone for o in offerings} == {"test-zone-1", "test-zone-2", "test-zone-3"}
    assert {o.capacity_type for o in offerings} == {"spot", "on-demand"}
    assert 4200 < len(offerings) < 4800


def test_pods_of_one_template_share_their_shape():
    pods = load("deployments-5/real").problem.pods

    assert len({id(pod.shape) for pod in pods}) == 5
    assert len({pod.uid for pod in pods}) == len(pods)


@pytest.fixture(scope="module")
def full():
    return load("diverse-10/real/daemons/nodes/on-demand").problem


def test_options_reach_the_problem(full):
    bare = load("diverse-10/real").problem

    assert (len(bare.daemons), len(bare.nodes)) == (0, 0)
    assert (len(full.daemons), len(full.nodes)) == (4, 1000)
    assert sum(d.shape.requests["cpu"] for d in full.daemons) == 500
    assert sum(d.shape.requests["memory"] for d in full.daemons) == 768 * 2**20
    assert full.pools[0].spec.template.spec.requirements[0].values == ("on-demand",)


def test_commitments_pay_for_half_of_the_cores():
    plain, paid = load("diverse-10/real").problem, load("diverse-10/real/commitments")
    asked = sum(pod.shape.requests["cpu"] for pod in plain.pods)

    balances = paid.problem.commitments
    assert plain.commitments == ()
    assert [each.commitment.discount for each in balances] == [0.4, 0.28]
    assert sum(each.remaining for each in balances) == 2 * (asked // 4)
    with pytest.raises(ValueError, match="no commitments"):
        paid.document()


def test_running_nodes_hold_no_more_than_they_have(full):
    nodes = full.nodes
    keepers = [{pod.shape.labels.get("app") for pod in node.pods} for node in nodes]

    assert all(amount >= 0 for node in nodes for amount in node.available.values())
    assert all(
        sum(pod.shape.labels.get("app") == "nginx" for pod in node.pods) <= 1 for node in nodes
    )
    assert sum("nginx" in apps for apps in keepers) > 500


@pytest.fixture(scope="module")
def cluster():
    return load("deployments-20/real/cluster").problem


def test_cluster_has_what_real_ones_have(cluster):
    shapes = {id(pod.shape): pod.shape for pod in cluster.pods}.values()
    spread = [
        any(s.topology_key == "topology.kubernetes.io/zone" for s in shape.topology_spread)
        for shape in shapes
    ]

    assert [pool.spec.weight for pool in cluster.pools] == [100, 50, 10]
    assert all(pool.spec.limits for pool in cluster.pools)
    assert len(cluster.daemons) == 4
    assert 0.4 <= sum(spread) / len(spread) <= 0.7
    assert {node.pool for node in cluster.nodes} == {"general", "flexible"}
    assert len({node.name for node in cluster.nodes}) == len(cluster.nodes)


def test_nodes_of_a_cluster_are_60_percent_full_beside_their_daemons(cluster):
    types = {it.name: it for it in cluster.catalogues["general"].instance_types}

    def fullness(node):
        allocatable = types[node.labels["node.kubernetes.io/instance-type"]].allocatable()
        daemons = {"cpu": 500, "memory": 768 * 2**20}
        return max(
            1 - node.available[name] / (allocatable[name] - daemons[name])
            for name in ("cpu", "memory")
        )

    shares = [fullness(node) for node in cluster.nodes]
    assert max(shares) <= 0.6
    assert sum(shares) / len(shares) > 0.5


def test_limits_of_a_cluster_bind_before_its_reservations_are_used_up(cluster):
    reserved, general, _ = cluster.pools
    sold = [
        (it.capacity["cpu"], o.reservation_capacity)
        for it in cluster.catalogues["general"].instance_types
        for o in it.offerings
        if o.capacity_type == "reserved"
    ]
    asked = sum(pod.shape.requests["cpu"] for pod in cluster.pods)
    left = (
        parse_amount("cpu", str(general.spec.limits["cpu"])) - cluster.pool_usage["general"]["cpu"]
    )

    assert len(sold) == 3
    assert parse_amount("cpu", str(reserved.spec.limits["cpu"])) < sum(c * n for c, n in sold)
    assert 0 < left < asked / 2


def test_preference_cases_differ_in_policy_only():
    respect, ignore = load("respect-10/fake400"), load("ignore-10/fake400")

    assert respect.options.preferences is PreferencePolicy.RESPECT
    assert ignore.options.preferences is PreferencePolicy.IGNORE
    assert respect.document()["pods"] == ignore.document()["pods"]


@pytest.mark.parametrize(
    "case", ["diverse-10", "strange-10/real", "diverse-10/real/odd", "openb/aws"]
)
def test_unknown_cases_are_refused(case):
    with pytest.raises(ValueError, match=case):
        load(case)
