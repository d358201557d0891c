"""Cases 99 to 117: custom and well-known constraints, labels, annotations and taints."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    NODE_POOL,
    OS,
    ZONE,
)
from karpenter_core.api.records import Taint
from karpenter_core.testing.builders import node_term, preferred_node_term, requirement_spec
from tests.scheduling.acceptance.catalogues import INTEGER, default_pool

LABELLED = {"test-key": "test-value"}


def test_case_099_template_labels_appear_on_the_node(cluster):
    cluster.use(default_pool(labels=LABELLED))
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.labels_of(pod)["test-key"] == "test-value"


def test_case_100_another_value_or_an_undefined_key_is_unschedulable(cluster):
    cluster.use(default_pool(labels=LABELLED))
    pods = [
        cluster.pod(node_selector={"test-key": "different-value"}),
        cluster.pod(node_selector={"other-key": "test-value"}),
    ]
    cluster.provision(*pods)
    assert cluster.is_unscheduled(*pods)


def test_case_101_affinity_to_one_of_two_values(cluster):
    cluster.use(default_pool(labels=LABELLED))
    good = cluster.pod(where=[("test-key", "In", "test-value", "another-value")])
    bad = cluster.pod(where=[("test-key", "In", "another-value")])
    cluster.provision(good, bad)
    assert cluster.labels_of(good)["test-key"] == "test-value"
    assert cluster.is_unscheduled(bad)


@pytest.mark.parametrize(
    ("operator", "values", "scheduled"),
    [
        ("In", ("test-value",), False),
        ("Exists", (), False),
        ("NotIn", ("test-value",), True),
        ("DoesNotExist", (), True),
    ],
)
def test_case_102_an_undefined_key(cluster, operator, values, scheduled):
    pod = cluster.pod(where=[("test-key", operator, *values)])
    cluster.provision(pod)
    assert cluster.is_scheduled(pod) == scheduled
    if scheduled:
        assert "test-key" not in cluster.labels_of(pod)


@pytest.mark.parametrize("defined_by", ["labels", "requirements"])
@pytest.mark.parametrize(
    ("operator", "values", "scheduled"),
    [
        ("In", ("test-value",), True),
        ("Exists", (), True),
        ("NotIn", ("another-value",), True),
        ("NotIn", ("test-value",), False),
        ("DoesNotExist", (), False),
        ("In", ("another-value",), False),
    ],
)
def test_case_103_a_defined_label(cluster, defined_by, operator, values, scheduled):
    if defined_by == "labels":
        cluster.use(default_pool(labels=LABELLED))
    else:
        cluster.use(default_pool(requirements=[requirement_spec("test-key", "In", "test-value")]))
    pod = cluster.pod(where=[("test-key", operator, *values)])
    cluster.provision(pod)
    assert cluster.is_scheduled(pod) == scheduled
    if scheduled:
        assert cluster.labels_of(pod)["test-key"] == "test-value"


def zonal_pool(*zones, **options):
    return default_pool(requirements=[requirement_spec(ZONE, "In", *zones)], **options)


def test_case_104_the_pools_zone_is_used(cluster):
    cluster.use(zonal_pool("z2"))
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] == "z2"


def test_case_104_the_pods_zone_within_the_pools(cluster):
    cluster.use(zonal_pool("z1", "z2"))
    pod = cluster.pod(node_selector={ZONE: "z2"})
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] == "z2"


@pytest.mark.parametrize("zone", ["unknown", "z2"])
def test_case_104_a_zone_that_is_unknown_or_not_the_pools(cluster, zone):
    cluster.use(zonal_pool("z1"))
    pod = cluster.pod(node_selector={ZONE: zone})
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def test_case_105_a_hostname_cannot_be_selected(cluster):
    pod = cluster.pod(node_selector={HOSTNAME: "red-node"})
    made = cluster.provision(pod)
    assert cluster.is_unscheduled(pod)
    assert f"using label {HOSTNAME} is not allowed" in made.reason(pod)


@pytest.mark.parametrize(
    ("operator", "value", "cores"),
    [("Gt", "8", "16"), ("Lt", "8", "2"), ("Gte", "16", "16"), ("Lte", "2", "2")],
)
def test_case_106_pools_may_bound_numbers(cluster, operator, value, cores):
    cluster.use(default_pool(requirements=[requirement_spec(INTEGER, operator, value)]))
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.labels_of(pod)[INTEGER] == cores


def test_case_107_zones_may_be_excluded(cluster):
    some = cluster.pod(where=[(ZONE, "NotIn", "z1", "z2", "unknown")])
    every = cluster.pod(where=[(ZONE, "NotIn", "z1", "z2", "z3", "unknown")])
    cluster.provision(some, every)
    assert cluster.labels_of(some)[ZONE] == "z3"
    assert cluster.is_unscheduled(every)


@pytest.mark.parametrize(
    ("required", "preferred", "zones"),
    [
        (("In", "z1", "z2", "z3", "unknown"), ("In", "z2", "unknown"), {"z2"}),
        (("In", "z1", "z2", "z3", "unknown"), ("In", "unknown"), {"z1", "z2", "z3"}),
        (("In", "z1", "z2", "z3", "unknown"), ("NotIn", "z1", "z3"), {"z2"}),
        (("In", "z1", "z2", "z3", "unknown"), ("NotIn", "z1", "z2", "z3"), {"z1", "z2", "z3"}),
    ],
    ids=["108-met", "108-not-met", "109-met", "109-not-met"],
)
def test_case_108_109_preferences_narrow_the_requirements(cluster, required, preferred, zones):
    pod = cluster.pod(
        where=[(ZONE, *required)], preferred=[preferred_node_term(1, (ZONE, *preferred))]
    )
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] in zones


def test_case_110_selector_requirement_and_preference_together(cluster):
    pod = cluster.pod(
        node_selector={ZONE: "z3"},
        where=[(ZONE, "In", "z1", "z2", "z3")],
        preferred=[preferred_node_term(1, (ZONE, "In", "z1", "z2", "z3"))],
    )
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] == "z3"


def test_case_110_several_dimensions(cluster):
    types = ("default-instance-type", "arm-instance-type")
    pod = cluster.pod(
        node_selector={ZONE: "z3", INSTANCE_TYPE: "arm-instance-type"},
        where=[(ZONE, "In", "z1", "z3"), (INSTANCE_TYPE, "In", *types)],
        preferred=[
            preferred_node_term(1, (ZONE, "In", "unknown"), (INSTANCE_TYPE, "In", "unknown")),
            preferred_node_term(1, (ZONE, "NotIn", "unknown"), (INSTANCE_TYPE, "NotIn", types[0])),
        ],
    )
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] == "z3"
    assert cluster.labels_of(pod)[INSTANCE_TYPE] == "arm-instance-type"


@pytest.mark.parametrize("key", ["karpenter.sh/test", "sub.karpenter.sh/test", HOSTNAME])
def test_case_111_restricted_labels_and_domains_are_unschedulable(cluster, key):
    pods = [cluster.pod(node_selector={key: "x"}), cluster.pod(where=[(key, "In", "x")])]
    made = cluster.provision(*pods)
    assert cluster.is_unscheduled(*pods)
    for pod in pods:
        assert f"using label {key} is not allowed" in made.reason(pod)
        assert cluster.snapshot.ledger.decisions[pod.uid].placed is False


@pytest.mark.parametrize(
    "key", ["kubernetes.io/test", "k8s.io/test", "subdomain.kubernetes.io/test", "kops.k8s.io/test"]
)
def test_case_112_labels_in_kubernetes_domains_are_the_pools_to_give(cluster, key):
    cluster.use(default_pool(requirements=[requirement_spec(key, "In", "test-value")]))
    plain, asking = cluster.pod(), cluster.pod(node_selector={key: "test-value"})
    cluster.provision(plain, asking)
    assert cluster.labels_of(plain)[key] == cluster.labels_of(asking)[key] == "test-value"


def two_values():
    values = ("test-value", "another-value")
    return default_pool(requirements=[requirement_spec("test-key", "In", *values)])


def test_case_113_compatible_pods_share_a_node_with_the_label_both_want(cluster):
    cluster.use(two_values())
    pods = [
        cluster.pod(where=[("test-key", "In", "test-value")]),
        cluster.pod(where=[("test-key", "NotIn", "another-value")]),
    ]
    cluster.provision(*pods)
    assert cluster.node_of(pods[0]) is cluster.node_of(pods[1])
    assert cluster.labels_of(pods[0])["test-key"] == "test-value"


def test_case_113_pods_that_want_different_values_get_two_nodes(cluster):
    cluster.use(two_values())
    pods = [
        cluster.pod(where=[("test-key", "In", value)]) for value in ("test-value", "another-value")
    ]
    cluster.provision(*pods)
    assert [cluster.labels_of(pod)["test-key"] for pod in pods] == ["test-value", "another-value"]


def test_case_114_well_known_requirements_are_no_labels_of_the_claim(cluster):
    cluster.use(
        default_pool(
            requirements=[
                requirement_spec(NODE_POOL, "Exists"),
                requirement_spec(INSTANCE_TYPE, "In", "default-instance-type"),
                requirement_spec(ZONE, "In", "z1", "z2"),
                requirement_spec(OS, "In", "linux"),
            ]
        )
    )
    cluster.provision(cluster.pod())
    (claim,) = cluster.created
    assert {INSTANCE_TYPE, ZONE, OS, ARCH, CAPACITY_TYPE}.isdisjoint(claim.metadata.labels)


def test_case_115_template_annotations_are_put_on_claim_and_node(cluster):
    cluster.use(default_pool(annotations={"example.com/note": "kept"}))
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.created[0].metadata.annotations["example.com/note"] == "kept"
    assert cluster.node_of(pod).annotations["example.com/note"] == "kept"


@pytest.mark.parametrize(
    ("toleration", "scheduled"),
    [
        ((), False),
        (("nvidia.com/gpu=true:NoSchedule",), True),
        (("nvidia.com/gpu:NoSchedule",), True),
        (("nvidia.com/gpu",), True),
        (("",), True),
        (("nvidia.com/gpu=false:NoSchedule",), False),
        (("nvidia.com/gpu=true:NoExecute",), False),
    ],
    ids=["none", "equal", "exists", "any effect", "all", "wrong value", "wrong effect"],
)
def test_case_116_a_pools_taint_requires_a_toleration(cluster, toleration, scheduled):
    cluster.use(default_pool(taints=["nvidia.com/gpu=true:NoSchedule"]))
    pod = cluster.pod(tolerations=toleration)
    cluster.provision(pod)
    assert cluster.is_scheduled(pod) == scheduled


def test_case_117_pool_taints_appear_on_the_node(cluster):
    cluster.use(default_pool(taints=["test=bar:NoSchedule"]))
    pod = cluster.pod(tolerations=["test=bar:NoSchedule"])
    cluster.provision(pod)
    assert Taint(key="test", value="bar", effect="NoSchedule") in cluster.node_of(pod).taints


def test_case_117_startup_taints_do_not_keep_a_plain_pod_away(cluster):
    cluster.use(default_pool(startup_taints=["ignore-me=nothing-to-see-here:NoSchedule"]))
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.is_scheduled(pod)


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
def test_case_117_a_toleration_makes_no_taints(cluster, effect):
    pod = cluster.pod(tolerations=[f"some-key:{effect}"])
    cluster.provision(pod)
    assert {item.key for item in cluster.node_of(pod).taints} == {"node.kubernetes.io/not-ready"}


def test_case_110_terms_that_are_alternatives(cluster):
    """The first required term that can be met is used together with the selector."""
    pod = cluster.pod(
        node_selector={ZONE: "z3"},
        required=[node_term((ZONE, "In", "z1")), node_term((ZONE, "In", "z3"))],
    )
    cluster.provision(pod)
    assert cluster.labels_of(pod)[ZONE] == "z3"


def test_case_032_a_repeated_exists_does_not_widen_a_value(cluster):
    pod = cluster.pod(where=[(ZONE, "In", "non-existent-zone"), (ZONE, "Exists")])
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)
