"""Cases 180 to 194: which instance types are chosen, and how many must be left to choose from."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    MIN_VALUES_RELAXED,
    NODE_POOL,
    OS,
    ZONE,
)
from karpenter_core.lifecycle.nodeclaim.node_claim_builder import created_metric
from karpenter_core.scheduling.problem import MinValuesPolicy
from karpenter_core.testing.builders import node_pool, offering, requirement_spec
from tests.scheduling.acceptance.catalogues import (
    NUMERICAL,
    assorted_types,
    default_pool,
    fake_type,
    minimum,
)

AMD64, ARM64 = {ARCH: "amd64"}, {ARCH: "arm64"}
LINUX, WINDOWS = {OS: "linux"}, {OS: "windows"}
SPOT, ON_DEMAND = {CAPACITY_TYPE: "spot"}, {CAPACITY_TYPE: "on-demand"}
Z1, Z2 = {ZONE: "z1"}, {ZONE: "z2"}


def pool_requiring(labels):
    requirements = [requirement_spec(key, "In", value) for key, value in labels.items()]
    return default_pool(requirements=requirements)


def listed_types(claim):
    (result,) = (item for item in claim.spec.requirements if item.key == INSTANCE_TYPE)
    return set(result.values)


@pytest.mark.parametrize(
    ("of_pool", "of_pod"),
    [
        ({}, {}),
        ({}, AMD64),
        ({}, ARM64),
        (AMD64, {}),
        (ARM64, {}),
        (WINDOWS, {}),
        ({}, WINDOWS),
        (LINUX, {}),
        ({}, LINUX),
        (Z2, {}),
        ({}, Z2),
        (SPOT, {}),
        ({}, SPOT),
        ({**ON_DEMAND, **Z1}, {}),
        ({}, {**SPOT, **Z1}),
        (SPOT, Z2),
        ({**ON_DEMAND, **Z1, **ARM64, **WINDOWS}, {}),
        ({**SPOT, **Z2}, {**AMD64, **LINUX}),
        ({}, {**SPOT, **Z2, **AMD64, **LINUX}),
    ],
)
def test_case_180_the_cheapest_offering_that_the_constraints_allow(cluster, of_pool, of_pod):
    types = {item.name: item for item in assorted_types()}
    cluster.use(pool_requiring(of_pool), types=types.values())
    pod = cluster.pod(where=[(key, "In", value) for key, value in of_pod.items()])
    (claim,) = cluster.provision(pod).claims
    bought = types[cluster.labels_of(pod)[INSTANCE_TYPE]]
    cheapest = min(item.offerings[0].price.amount for item in types.values())
    assert bought.offerings[0].price.amount == cheapest
    for name in listed_types(claim):
        for key, value in {**of_pool, **of_pod}.items():
            assert types[name].requirements.get(key).has(value)


@pytest.mark.parametrize(
    ("of_pool", "of_pod"),
    [({}, {ARCH: "arm"}), ({}, {ARCH: "arm", **Z2}), ({ARCH: "arm"}, Z2)],
)
def test_case_181_an_unknown_architecture_is_unschedulable(cluster, of_pool, of_pod):
    cluster.use(pool_requiring(of_pool), types=assorted_types())
    pod = cluster.pod(where=[(key, "In", value) for key, value in of_pod.items()])
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)
    assert cluster.created == []


def test_case_182_types_are_ordered_by_the_offerings_that_are_allowed(cluster):
    types = [
        fake_type(
            name,
            "1",
            "1Gi",
            offerings=[offering("z1", "on-demand", dear), offering("z1", "spot", cheap)],
        )
        for name, dear, cheap in (("type-1", 1.0, 0.2), ("type-2", 1.3, 0.1))
    ]
    cluster.use(pool_requiring(ON_DEMAND), types=types)
    pod = cluster.pod()
    made = cluster.provision(pod)
    assert made.plan.claims[0].instance_types == ("type-1", "type-2")
    assert cluster.labels_of(pod)[INSTANCE_TYPE] == "type-1"


def spot_only(name, cores, price, number=None):
    return fake_type(
        name,
        str(cores),
        f"{cores}Gi",
        arch="arm64",
        systems=("linux",),
        offerings=[offering("z1", "spot", price)],
        labels={NUMERICAL: str(number)} if number else None,
    )


def one_and_four():
    return [spot_only("instance-type-1", 1, 0.52), spot_only("instance-type-2", 4, 1.0)]


def numbered():
    return [
        spot_only("instance-type-1", 1, 0.52, 2),
        spot_only("instance-type-2", 1, 1.0, 3),
        spot_only("instance-type-3", 4, 1.2, 4),
    ]


def pool_with(*requirements, **options):
    return node_pool(requirements=requirements, limits={"cpu": "2000"}, **options)


NAMES = ("instance-type-1", "instance-type-2")
KEEPS_TWO = {
    "183-in": (one_and_four, [minimum(2, INSTANCE_TYPE, "In", *NAMES)]),
    "184-gt": (numbered, [minimum(2, NUMERICAL, "Gt", "2")]),
    "184-lt": (
        lambda: [
            spot_only("instance-type-1", 4, 1.2, 2),
            spot_only("instance-type-2", 1, 1.0, 3),
            spot_only("instance-type-3", 4, 1.3, 4),
        ],
        [minimum(2, NUMERICAL, "Lt", "4")],
    ),
    "187-in-and-not-in": (
        lambda: [*one_and_four(), spot_only("instance-type-3", 4, 1.2)],
        [
            minimum(1, INSTANCE_TYPE, "In", *NAMES, "instance-type-3"),
            minimum(2, INSTANCE_TYPE, "NotIn", "instance-type-3"),
        ],
    ),
    "187-gt-and-lt": (
        lambda: [*numbered(), spot_only("instance-type-4", 4, 1.2, 5)],
        [minimum(1, NUMERICAL, "Gt", "2"), minimum(2, NUMERICAL, "Lt", "5")],
    ),
    "187-exists-and-in": (
        one_and_four,
        [minimum(1, INSTANCE_TYPE), minimum(2, INSTANCE_TYPE, "In", *NAMES)],
    ),
    "190-two-keys": (
        lambda: [
            fake_type(
                "instance-type-1", "1", "1Gi", arch="arm64",
                offerings=[offering("z1", "spot", 0.52)],
            ),
            fake_type("instance-type-2", "4", "4Gi", offerings=[offering("z1", "spot", 1.0)]),
        ],
        [minimum(2, ARCH), minimum(1, INSTANCE_TYPE, "In", *NAMES)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPS_TWO)
def test_case_183_184_187_190_min_values_limit_the_pods_of_a_node(cluster, name):
    """Both pods together fit the large type only, which alone is too little choice."""
    types, requirements = KEEPS_TWO[name]
    cluster.use(pool_with(*requirements), types=types())
    pods = cluster.pods(2, cpu="900m", memory="900Mi")
    cluster.provision(*pods)
    assert cluster.is_scheduled(*pods)
    assert len(cluster.nodes) == 2
    assert all(len(listed_types(claim)) >= 2 for claim in cluster.created)


def test_case_185_the_error_names_the_label_that_lacks_values(cluster):
    cluster.use(
        pool_with(minimum(2, NUMERICAL)),
        types=[spot_only("instance-type-1", 1, 0.52, 2), spot_only("instance-type-2", 4, 1.0, 3)],
    )
    pods = cluster.pods(2, cpu="900m", memory="900Mi", where=[(NUMERICAL, "Gt", "2")])
    made = cluster.provision(*pods)
    text = "minValues requirement is not met for label(s) (label(s)=[karpenter/numerical-value])"
    assert cluster.is_unscheduled(*pods)
    assert all(text in made.reason(pod) for pod in pods)


def test_case_186_a_bound_that_leaves_too_few_values(cluster):
    types = [
        spot_only("instance-type-1", 1, 0.52, 2),
        spot_only("instance-type-2", 1, 1.0, 4),
        spot_only("instance-type-3", 4, 1.2, 4),
    ]
    cluster.use(pool_with(minimum(2, NUMERICAL, "Lt", "4")), types=types)
    pods = cluster.pods(2, cpu="900m", memory="900Mi")
    cluster.provision(*pods)
    assert cluster.is_unscheduled(*pods)


def test_case_188_more_values_than_there_are_types(cluster):
    cluster.use(pool_with(minimum(11, INSTANCE_TYPE)), types=assorted_types()[:10])
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def test_case_189_a_list_cut_below_its_min_values_is_dropped(cluster):
    cluster.configure(max_instance_types=1)
    cluster.use(pool_with(minimum(2, INSTANCE_TYPE, "In", *NAMES)), types=one_and_four())
    pods = cluster.pods(2, cpu="900m", memory="900Mi")
    made = cluster.provision(*pods)
    assert cluster.is_unscheduled(*pods)
    assert all("minValues" in made.reason(pod) for pod in pods)


def test_case_190_one_of_two_keys_missed(cluster):
    cluster.use(
        pool_with(minimum(2, ARCH), minimum(1, INSTANCE_TYPE, "In", *NAMES)), types=one_and_four()
    )
    pod = cluster.pod(cpu="900m")
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def best_effort(cluster):
    cluster.configure(min_values=MinValuesPolicy.BEST_EFFORT)


def two_of_three():
    return [
        fake_type(f"instance-type-{number}", offerings=[offering(f"z{number}", "spot", 0.52)])
        for number in (1, 2)
    ]


THREE = (*NAMES, "instance-type-3")
THREE_TYPES = minimum(3, INSTANCE_TYPE, "In", *THREE)


def entry(claim, key):
    """Return values and minValues of a claim's requirement."""
    (result,) = (item for item in claim.spec.requirements if item.key == key)
    return set(result.values), result.min_values


def test_case_191_strict_min_values_are_not_given_up(cluster):
    cluster.use(pool_with(THREE_TYPES, weight=100), types=two_of_three())
    pod = cluster.pod(cpu="900m", memory="900Mi")
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def test_case_191_best_effort_relaxes_min_values_and_records_it(cluster):
    best_effort(cluster)
    cluster.use(pool_with(THREE_TYPES, weight=100), types=two_of_three())
    pod = cluster.pod(cpu="900m", memory="900Mi")
    cluster.provision(pod)
    (claim,) = cluster.created
    assert cluster.labels_of(pod)[INSTANCE_TYPE] == "instance-type-1"
    assert cluster.node_of(pod).annotations[MIN_VALUES_RELAXED] == "true"
    assert entry(claim, INSTANCE_TYPE) == (set(NAMES), 2)
    assert created_metric(claim, "provisioned").labels["min_values_relaxed"] == "true"


def test_case_191_min_values_that_are_met_are_not_recorded_as_relaxed(cluster):
    best_effort(cluster)
    cluster.use(pool_with(minimum(2, INSTANCE_TYPE, "In", *NAMES)), types=two_of_three())
    cluster.provision(cluster.pod())
    (claim,) = cluster.created
    assert claim.metadata.annotations[MIN_VALUES_RELAXED] == "false"
    assert entry(claim, INSTANCE_TYPE) == (set(NAMES), 2)


@pytest.mark.parametrize(
    "lighter", [[requirement_spec(INSTANCE_TYPE, "In", *THREE)], [THREE_TYPES]]
)
def test_case_192_a_heavier_pool_is_relaxed_before_a_lighter_one_is_used(cluster, lighter):
    best_effort(cluster)
    cluster.use(
        node_pool("heavy", weight=100, requirements=[THREE_TYPES]),
        node_pool("light", weight=10, requirements=lighter),
        types=two_of_three(),
    )
    pod = cluster.pod(cpu="900m", memory="900Mi")
    cluster.provision(pod)
    (claim,) = cluster.created
    assert cluster.labels_of(pod)[NODE_POOL] == "heavy"
    assert cluster.labels_of(pod)[INSTANCE_TYPE] == "instance-type-1"
    assert claim.metadata.annotations[MIN_VALUES_RELAXED] == "true"
    assert entry(claim, INSTANCE_TYPE) == (set(NAMES), 2)


ZONES = ("z1", "z2", "z3")
THREE_ZONES = minimum(3, ZONE, "In", *ZONES)


def two_zones():
    return [
        fake_type(
            "instance-type-1",
            offerings=[offering("z1", "spot", 0.52), offering("z2", "spot", 0.54)],
        )
    ]


def test_case_193_zones_too_few_under_the_strict_policy(cluster):
    cluster.use(pool_with(THREE_ZONES), types=two_zones())
    pod = cluster.pod(cpu="900m", memory="900Mi")
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def test_case_193_best_effort_lowers_the_number_and_leaves_the_zones(cluster):
    best_effort(cluster)
    cluster.use(pool_with(THREE_ZONES), types=two_zones())
    pod = cluster.pod(cpu="900m", memory="900Mi")
    cluster.provision(pod)
    (claim,) = cluster.created
    assert cluster.labels_of(pod)[ZONE] in {"z1", "z2"}
    assert claim.metadata.annotations[MIN_VALUES_RELAXED] == "true"
    assert entry(claim, ZONE) == (set(ZONES), 2)


def test_case_194_min_values_of_two_keys_are_lowered_separately(cluster):
    best_effort(cluster)
    cluster.use(pool_with(THREE_TYPES, THREE_ZONES, weight=100), types=two_zones())
    pod = cluster.pod(cpu="900m", memory="900Mi")
    cluster.provision(pod)
    (claim,) = cluster.created
    assert cluster.labels_of(pod)[INSTANCE_TYPE] == "instance-type-1"
    assert cluster.node_of(pod).annotations[MIN_VALUES_RELAXED] == "true"
    assert entry(claim, INSTANCE_TYPE) == ({"instance-type-1"}, 1)
    assert entry(claim, ZONE) == (set(ZONES), 2)
