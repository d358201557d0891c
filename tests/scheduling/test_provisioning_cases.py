"""Acceptance cases of placement, told as problems: sections E to M, as far as supported now."""

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
from karpenter_core.scheduling.problem import (
    Constraint,
    MinValuesPolicy,
    Packing,
    PreferencePolicy,
    SolveOptions,
)
from karpenter_core.testing.builders import (
    daemon,
    existing_node,
    node_term,
    offering,
    pod,
    pod_shape,
    pods,
    preferred_node_term,
    requirement_spec,
)
from tests.scheduling.fixtures import (
    DEFAULT_TYPES,
    INTEGER,
    SIZE,
    Outcome,
    assorted_types,
    default_pool,
    fake_type,
    provision,
)

FIRST_FIT = SolveOptions(packing=Packing.FIRST_FIT)
BEST_EFFORT = SolveOptions(min_values=MinValuesPolicy.BEST_EFFORT)
IGNORE = SolveOptions(preferences=PreferencePolicy.IGNORE)
AMD64 = {ARCH: "amd64"}


def required(key, operator, *values):
    return pod(required=[node_term((key, operator, *values))])


# -- E: basic provisioning -------------------------------------------------------------------------


def test_one_pod_one_node_and_many_pods_too():
    """Case 88."""
    assert provision(pod()).nodes == 1
    many = provision(*pods(100, cpu="100m"))
    assert sum(len(claim.pods) for claim in many.plan.claims) == 100


def test_without_pools_pods_fail_with_a_word():
    """Case 90."""
    assert provision(pod(), pools=[]).reason().message == "no dynamic nodepools found"


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        (NODE_POOL, "default", "other"),
        (ZONE, "z2", "z9"),
        (INSTANCE_TYPE, "small-instance-type", "tiny"),
        (ARCH, "arm64", "mips"),
        (OS, "windows", "plan9"),
        (SIZE, "small", "middling"),
    ],
)
def test_selectors_and_affinity_choose_well_known_labels(key, right, wrong):
    """Case 92."""
    assert provision(pod(node_selector={key: right})).scheduled()
    assert provision(required(key, "In", right, wrong)).scheduled()
    refused = provision(pod(node_selector={key: wrong}))
    assert refused.reason().pools["default"].constraint is Constraint.REQUIREMENT


def test_accelerators_come_with_the_types_that_have_them():
    """Case 93 and 178."""
    both = provision(
        pod("a", requests={"fake.com/vendor_a": "1"}), pod("b", requests={"fake.com/vendor_b": "1"})
    )
    assert sorted(both.types) == ["gpu-vendor-b-instance-type", "gpu-vendor-instance-type"]
    asked = {"fake.com/vendor_a": "1", "fake.com/vendor_b": "1"}
    none = provision(pod(requests=asked)).reason().pools["default"]
    assert none.constraint is Constraint.RESOURCE
    assert (
        "fake.com/vendor_b: 1 asked" in none.detail or "fake.com/vendor_a: 1 asked" in none.detail
    )


def test_a_type_for_one_pod_gives_a_node_a_pod():
    """Case 94."""
    only = requirement_spec(INSTANCE_TYPE, "In", "single-pod-instance-type")
    assert provision(*pods(3), pools=[default_pool(requirements=[only])]).nodes == 3


# -- F: custom and well-known constraints ----------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "values", "undefined", "defined"),
    [
        ("In", ("test-value", "another"), False, True),
        ("In", ("another",), False, False),
        ("Exists", (), False, True),
        ("NotIn", ("test-value",), True, False),
        ("NotIn", ("another",), True, True),
        ("DoesNotExist", (), True, False),
    ],
)
def test_custom_labels_must_be_defined_by_the_pool(operator, values, undefined, defined):
    """Cases 99 to 103."""
    asking = required("test-key", operator, *values)
    labelled = default_pool(labels={"test-key": "test-value"})

    assert provision(asking).scheduled() == undefined
    outcome = provision(asking, pools=[labelled])
    assert outcome.scheduled() == defined
    if defined:
        assert outcome.claim().labels["test-key"] == "test-value"
    if undefined:
        assert "test-key" not in provision(asking).claim().labels


def test_zones_of_pool_and_pod_meet():
    """Cases 104, 107."""
    in_z2 = [default_pool(requirements=[requirement_spec(ZONE, "In", "z2")])]
    two = [default_pool(requirements=[requirement_spec(ZONE, "In", "z1", "z2")])]
    assert provision(pod(), pools=in_z2).claim().cheapest.zone == "z2"
    assert provision(pod(node_selector={ZONE: "z2"}), pools=two).claim().cheapest.zone == "z2"
    assert not provision(pod(node_selector={ZONE: "z3"}), pools=two).scheduled()
    assert provision(required(ZONE, "NotIn", "z1", "z2", "x")).claim().cheapest.zone == "z3"
    assert not provision(required(ZONE, "NotIn", "z1", "z2", "z3")).scheduled()


@pytest.mark.parametrize("key", [HOSTNAME, "karpenter.sh/other", "karpenter.sh/initialized"])
def test_labels_of_the_core_cannot_be_selected(key):
    """Cases 105, 111."""
    refused = provision(pod(node_selector={key: "true"})).reason()
    assert refused.pools["default"].constraint is Constraint.REQUIREMENT
    assert f"using label {key} is not allowed" in refused.message


@pytest.mark.parametrize(
    ("operator", "value", "cpu"),
    [("Gt", "8", 16), ("Lt", "8", 2), ("Gte", "16", 16), ("Lte", "2", 2)],
)
def test_pools_may_bound_numbers(operator, value, cpu):
    """Case 106."""
    pool = default_pool(requirements=[requirement_spec(INTEGER, operator, value)])
    by_cpu = {16: "arm-instance-type", 2: "small-instance-type"}
    assert provision(pod(), pools=[pool]).types == [by_cpu[cpu]]


def test_preferences_narrow_down_as_long_as_they_can():
    """Cases 108, 109, 121, 122."""

    def zone(wanted, *wishes):
        weights = range(100, 0, -1)
        terms = [node_term((ZONE, *wanted))] if wanted else []
        preferred = [
            preferred_node_term(weight, (ZONE, *wish))
            for weight, wish in zip(weights, wishes, strict=False)
        ]
        return provision(pod(required=terms, preferred=preferred)).claim().cheapest.zone

    everywhere = ("In", "z1", "z2", "z3", "unknown")
    assert zone(everywhere, ("In", "z2", "unknown")) == "z2"
    assert zone(everywhere, ("In", "unknown")) in {"z1", "z2", "z3"}
    assert zone(everywhere, ("NotIn", "z1", "z3")) == "z2"
    assert zone(everywhere, ("NotIn", "z1", "z2", "z3")) in {"z1", "z2", "z3"}
    assert zone((), ("In", "unknown"), ("In", "z2"), ("In", "z1")) == "z2"
    assert zone(("In", "z1"), ("In", "z2")) == "z1"


def test_a_pool_with_two_values_gives_each_pod_the_label_it_asks_for():
    """Cases 112 to 114."""
    pool = default_pool(
        requirements=[
            requirement_spec("test-key", "In", "test-value", "another-value"),
            requirement_spec("kubernetes.io/test", "In", "x"),
        ]
    )
    one = pod("one", required=[node_term(("test-key", "In", "test-value"))])
    same = pod("same", required=[node_term(("test-key", "NotIn", "another-value"))])
    other = pod("other", node_selector={"test-key": "another-value"})

    together = provision(one, same, pools=[pool])
    apart = provision(one, other, pools=[pool])

    assert together.nodes == 1
    assert together.claim("one").labels["test-key"] == "test-value"
    assert together.claim("one").labels["kubernetes.io/test"] == "x"
    assert ZONE not in together.claim("one").labels
    assert apart.claim("other").labels["test-key"] == "another-value"
    assert apart.nodes == 2


@pytest.mark.parametrize(
    ("toleration", "scheduled"),
    [
        ((), False),
        (("team=blue:NoSchedule",), True),
        (("team:NoSchedule",), True),
        (("team",), True),
        (("",), True),
        (("team=red:NoSchedule",), False),
        (("team=blue:NoExecute",), False),
    ],
)
def test_taints_keep_pods_away_that_do_not_tolerate_them(toleration, scheduled):
    """Cases 116, 117."""
    tainted = default_pool(taints=["team=blue:NoSchedule"], startup_taints=["boot:NoSchedule"])
    outcome = provision(pod(tolerations=toleration), pools=[tainted])
    assert outcome.scheduled() == scheduled
    if not scheduled:
        reason = outcome.reason().pools["default"]
        assert reason.constraint is Constraint.TAINT
        assert 'did not tolerate taint "team=blue:NoSchedule"' in reason.detail


# -- G: relaxation ---------------------------------------------------------------------------------


def test_required_terms_are_alternatives_and_the_last_stays():
    """Cases 118, 119."""
    terms = [node_term((ZONE, "In", zone)) for zone in ("x", "y", "z1", "z2")]
    assert not provision(pod(required=terms[:1])).scheduled()
    assert provision(pod(required=terms)).claim().cheapest.zone == "z1"


def test_soft_taints_are_given_up_last_and_avoided_when_they_can():
    """Cases 123, 124."""
    soft = default_pool("soft", taints=["busy:PreferNoSchedule"], weight=10)
    wishing = pod(preferred=[preferred_node_term(1, (ZONE, "In", "unknown"))])

    assert provision(wishing, pools=[soft]).claim().pool == "soft"
    assert provision(wishing, pools=[soft, default_pool("plain")]).claim().pool == "plain"


def test_preferences_can_be_ignored():
    """Cases 125, 128."""
    wishes = [
        pod(f"p{n}", preferred=[preferred_node_term(1, (ZONE, "In", f"z{n + 1}"))]) for n in (0, 1)
    ]
    assert provision(*wishes, options=IGNORE).nodes == 1
    assert provision(*wishes).nodes == 2


# -- H, I: pools and limits ------------------------------------------------------------------------


def test_pools_are_asked_by_weight_and_then_by_name():
    """Cases 130 to 132."""
    weighted = [default_pool("a"), default_pool("b", weight=20), default_pool("c", weight=100)]
    outcome = provision(*pods(10, cpu="1"), pools=weighted)
    assert {claim.pool for claim in outcome.plan.claims} == {"c"}
    equal = [default_pool(name) for name in ("a", "b")]
    assert provision(pod(), pools=equal).claim().pool == "b"
    explicit = pod(node_selector={NODE_POOL: "a"})
    assert provision(explicit, pools=weighted).claim().pool == "a"


@pytest.mark.parametrize(
    ("limit", "usage", "cpus", "placed"),
    [
        ("20", 100_000, ["1"], 0),
        ("2", 0, ["1750m"], 1),
        ("3", 0, ["1500m", "1500m"], 1),
        ("2", 0, ["2100m"], 0),
        ("2", 0, ["1750m", "1750m"], 1),
    ],
)
@pytest.mark.parametrize("options", [None, FIRST_FIT], ids=["value", "first-fit"])
def test_limits_hold_within_a_batch(limit, usage, cpus, placed, options):
    """Cases 134 to 139."""
    outcome = provision(
        *(pod(f"p{n}", cpu=cpu) for n, cpu in enumerate(cpus)),
        pools=[default_pool(limits={"cpu": limit})],
        pool_usage={"default": {"cpu": usage}},
        options=options,
    )
    assert outcome.nodes == placed
    for why in outcome.plan.unschedulable.values():
        assert why.pools["default"].constraint is Constraint.LIMIT
        assert "exceed limits for nodepool" in why.message


def test_nodes_and_pods_can_be_limited_too():
    """Cases 138, 140; the limit counts down within the batch (decision Q3)."""
    single = requirement_spec(INSTANCE_TYPE, "In", "single-pod-instance-type")
    two = default_pool(requirements=[single], limits={"nodes": "2"})
    outcome = provision(*pods(3), pools=[two])
    assert outcome.nodes == 2
    (why,) = outcome.plan.unschedulable.values()
    assert "node limits have been exhausted for nodepool" in why.message
    gpu = pod(requests={"fake.com/vendor_a": "1"})
    assert not provision(gpu, pools=[default_pool(limits={"pods": "1"})]).scheduled()


# -- J: daemons ------------------------------------------------------------------------------------


def test_daemons_take_room_on_every_node_they_may_run_on():
    """Cases 141, 143, 148, 150."""
    big = daemon(cpu="2", memory="1Gi")
    small = pod(cpu="1", memory="1Gi")
    boot = default_pool(startup_taints=["boot:NoSchedule"])
    tainted = default_pool(taints=["team:NoSchedule"])
    tolerant = pod(cpu="1", memory="1Gi", tolerations=["team"])
    labelled = daemon(shape=pod_shape(cpu="2", memory="1Gi", node_selector={"foo": "bar"}))

    assert provision(small, daemons=[big]).types == ["default-instance-type"]
    assert provision(small, daemons=[big], pools=[boot]).types == ["default-instance-type"]
    assert provision(tolerant, daemons=[big], pools=[tainted]).types == ["small-instance-type"]
    assert provision(small, daemons=[labelled]).types == ["small-instance-type"]
    foo = default_pool(labels={"foo": "bar"})
    assert provision(small, daemons=[labelled], pools=[foo]).types == ["default-instance-type"]


def test_a_daemon_that_fits_nowhere_is_the_reason():
    """Case 144."""
    why = provision(pod(), daemons=[daemon(cpu="10000")]).reason().pools["default"]
    assert why.constraint is Constraint.DAEMON
    assert why.closest


def test_host_ports_of_daemons_are_taken():
    """Cases 142, 157."""
    everywhere = daemon(shape=pod_shape(host_ports=[8080]))
    on_large = daemon(shape=pod_shape(host_ports=[8080], node_selector={SIZE: "large"}))
    asking = pod(cpu="1", host_ports=[8080])

    why = provision(asking, daemons=[everywhere]).reason().pools["default"]
    assert why.constraint is Constraint.PORT
    assert "Port=8080" in why.detail
    outcome = provision(asking, daemons=[on_large])
    assert "arm-instance-type" not in outcome.claim().instance_types


def test_only_the_daemons_of_a_type_count_on_it():
    """Cases 149, 151 to 156, 160."""
    per_size = [
        daemon("s", shape=pod_shape(cpu="1", memory="1Gi", node_selector={SIZE: "small"})),
        daemon("l", shape=pod_shape(cpu="10", memory="1Gi", node_selector={SIZE: "large"})),
    ]
    plain = pod(cpu="1", memory="1Gi")
    assert provision(plain, daemons=per_size).types == ["default-instance-type"]

    def counts(pools=None, **shape):
        one = daemon(shape=pod_shape(cpu="2", memory="1Gi", **shape))
        return provision(plain, daemons=[one], pools=pools).types == ["default-instance-type"]

    assert not counts(node_selector={INSTANCE_TYPE: "none"})
    assert counts(required=[node_term(("foo", "NotIn", "bar"))])
    assert counts(required=[node_term(("foo", "In", "x")), node_term((ZONE, "Exists"))])
    assert counts(preferred=[preferred_node_term(1, (ZONE, "In", "x"))])
    assert counts(node_selector={"karpenter.sh/initialized": "true"})
    assert counts([default_pool(taints=["busy:PreferNoSchedule"])])


def test_a_claim_asks_for_its_pods_and_the_least_of_its_daemons():
    """Cases 158, 159, 166; labels of the simulation never leave it (160)."""
    agent = daemon(cpu="1", memory="1Mi")
    alone = provision(pod(cpu="1", memory="1Mi")).claim()
    one = provision(pod(cpu="1", memory="1Mi"), daemons=[agent]).claim()
    two = provision(*pods(2, cpu="1", memory="1Mi"), daemons=[agent]).plan.claims[0]

    assert alone.requests == {"cpu": 1000, "memory": 2**20, "pods": 1}
    assert one.requests == {"cpu": 2000, "memory": 2 * 2**20, "pods": 2}
    assert two.requests == {"cpu": 3000, "memory": 3 * 2**20, "pods": 3}
    assert not [r for r in one.requirements if r.key in {"karpenter.sh/registered", HOSTNAME}]


# -- K, L: contents and packing --------------------------------------------------------------------


def test_a_claim_lists_everything_that_would_do():
    """Cases 162 to 164."""
    claim = provision(pod(cpu="2100m", node_selector=AMD64)).claim()
    requirements = {r.key: r for r in claim.requirements}

    assert set(claim.instance_types) == {
        "default-instance-type", "gpu-vendor-instance-type", "gpu-vendor-b-instance-type",
        "single-pod-instance-type",
    }  # fmt: skip
    assert requirements[INSTANCE_TYPE].values == set(claim.instance_types)
    assert requirements[NODE_POOL].values == {"default"}
    assert requirements[CAPACITY_TYPE].values == {"spot", "on-demand"}
    assert requirements[ARCH].values == {"amd64"}


@pytest.mark.parametrize("options", [None, FIRST_FIT], ids=["value", "first-fit"])
def test_pods_are_packed(options):
    """Cases 167, 168, 172, 173."""
    tiny = {"cpu": "1m", "memory": "1M"}
    assert provision(pod(memory="100M"), options=options).types == ["small-instance-type"]
    assert provision(pod(memory="2000M"), options=options).types == ["small-instance-type"]
    assert provision(*pods(5, memory="10M"), options=options).types == ["small-instance-type"]
    assert not provision(pod(memory="2Ti"), options=options).scheduled()
    small = [default_pool(requirements=[requirement_spec(ARCH, "In", "amd64")])]
    many = provision(*pods(25, **tiny), pools=small, options=options)
    assert many.types == ["small-instance-type"] * 5


def test_large_pods_fill_nodes_and_small_ones_the_gaps():
    """Cases 169, 170 (reference-like order)."""
    large = pods(40, "large", memory="1800M", cpu="1m", node_selector=AMD64)
    small = pods(20, "small", memory="400M", cpu="1m", node_selector=AMD64)
    assert provision(*large, options=FIRST_FIT).types == ["default-instance-type"] * 20
    assert provision(*large, *small, options=FIRST_FIT).nodes == 20
    value = provision(*large, *small)
    assert value.plan.cost.hourly <= value.plan.cost.first_fit


def test_pods_of_different_sizes_get_machines_of_their_size():
    """Case 171."""
    types = [fake_type(f"fake-it-{n}", n + 1, 2 * (n + 1), 10 * (n + 1)) for n in range(5)]
    outcome = provision(pod("big", cpu="4500m"), pod("small", cpu="1"), types=types)
    assert sorted(outcome.types) == ["fake-it-1", "fake-it-4"]


def test_the_cheapest_type_comes_first_whatever_its_size():
    """Case 175."""
    types = [
        fake_type(name, cpu, 2 * cpu, offerings=[offering("z1", "on-demand", price)])
        for name, cpu, price in (("medium", 2, 3.0), ("small", 1, 2.0), ("large", 4, 1.0))
    ]
    claim = provision(pod(cpu="1m", memory="1Mi"), types=types).claim()
    assert claim.instance_types == ("large", "small", "medium")
    assert claim.cheapest.price_per_hour == 1.0


@pytest.mark.parametrize("cpu", ["100m", "1", "2500m", "16"])
@pytest.mark.parametrize("memory", ["100Mi", "2Gi", "32Gi"])
def test_every_listed_type_holds_the_pods(cpu, memory):
    """Case 177; the verifier looks at each listed type."""
    outcome = provision(*pods(3, cpu=cpu, memory=memory), types=assorted_types(), options=FIRST_FIT)
    assert outcome.nodes == 1


def test_two_pods_that_exclude_each_other_get_two_nodes():
    """Case 179."""
    for key, values in (
        (ARCH, ("amd64", "arm64")),
        (OS, ("windows", "ios")),
        (INSTANCE_TYPE, ("small-instance-type", "default-instance-type")),
        (ZONE, ("z1", "z2")),
    ):
        two = [pod(f"p{n}", node_selector={key: value}) for n, value in enumerate(values)]
        assert provision(*two).nodes == 2


# -- M: instance selection -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "selector"),
    [
        ({}, {}),
        ({}, {ARCH: "arm64"}),
        ({ARCH: "amd64"}, {}),
        ({}, {OS: "windows"}),
        ({ZONE: "z2"}, {}),
        ({}, {CAPACITY_TYPE: "spot"}),
        ({CAPACITY_TYPE: "spot", ZONE: "z2"}, {ARCH: "amd64", OS: "linux"}),
        ({CAPACITY_TYPE: "on-demand", ZONE: "z1", ARCH: "arm64", OS: "windows"}, {}),
        ({}, {CAPACITY_TYPE: "spot", ZONE: "z2", ARCH: "amd64", OS: "linux"}),
    ],
)
def test_the_price_is_the_least_that_the_constraints_allow(pool, selector):
    """Case 180: every listed type matches, too (the verifier)."""
    requirements = [requirement_spec(key, "In", value) for key, value in pool.items()]
    types = assorted_types()
    claim = provision(
        pod(node_selector=selector), pools=[default_pool(requirements=requirements)], types=types
    ).claim()
    assert claim.cheapest.price_per_hour == min(t.offerings[0].price.amount for t in types)


def test_an_unknown_architecture_is_unschedulable():
    """Case 181."""
    asking = pod(node_selector={ARCH: "arm", ZONE: "z1"})
    assert not provision(asking, types=assorted_types()).scheduled()


def test_types_are_sorted_by_offerings_that_are_allowed():
    """Case 182."""
    types = [
        fake_type(
            name,
            offerings=[offering("z1", "on-demand", dear), offering("z1", "spot", cheap)],
        )
        for name, dear, cheap in (("type1", 1.0, 0.2), ("type2", 1.3, 0.1))
    ]
    pool = default_pool(requirements=[requirement_spec(CAPACITY_TYPE, "In", "on-demand")])
    assert provision(pod(), pools=[pool], types=types).types == ["type1"]


def two_sizes():
    return [fake_type("instance-type-1", 1, 4), fake_type("instance-type-2", 4, 4)]


def minimum(count, key=INSTANCE_TYPE, operator="Exists", *values):
    return requirement_spec(key, operator, *values, min_values=count)


@pytest.mark.parametrize("options", [None, FIRST_FIT], ids=["value", "first-fit"])
def test_min_values_limit_what_goes_on_a_node(options):
    """Cases 183, 184."""
    for entry in (
        minimum(2, INSTANCE_TYPE, "In", "instance-type-1", "instance-type-2"),
        minimum(2, INTEGER, "Gt", "0"),
        minimum(2, INTEGER, "Lt", "5"),
    ):
        outcome = provision(
            *pods(2, cpu="900m"),
            pools=[default_pool(requirements=[entry])],
            types=two_sizes(),
            options=options,
        )
        assert outcome.nodes == 2
        assert all(len(claim.instance_types) == 2 for claim in outcome.plan.claims)


@pytest.mark.parametrize(
    "entries",
    [
        [minimum(3)],
        [minimum(2, INTEGER, "Lt", "4")],
        [minimum(1, INSTANCE_TYPE, "In", "instance-type-1"), minimum(2)],
        [minimum(11)],
        [minimum(2), minimum(3, ZONE), minimum(4, INTEGER)],
    ],
)
def test_min_values_that_cannot_be_had_leave_pods_pending(entries):
    """Cases 186 to 188, 190, 191."""
    outcome = provision(pod(), pools=[default_pool(requirements=entries)], types=two_sizes())
    assert outcome.reason().pools["default"].constraint is Constraint.MIN_VALUES


def test_the_message_names_the_label_that_misses_min_values():
    """Case 185."""
    pool = default_pool(requirements=[minimum(2, INTEGER)])
    large = pod(required=[node_term((INTEGER, "Gt", "2"))])
    why = provision(large, pools=[pool], types=two_sizes()).reason()
    assert f"minValues requirement is not met for label(s) (label(s)=[{INTEGER}])" in why.message


def test_a_list_cut_below_min_values_is_no_claim():
    """Case 189."""
    options = SolveOptions(max_instance_types=1)
    outcome = provision(
        pod(), pools=[default_pool(requirements=[minimum(2)])], types=two_sizes(), options=options
    )
    assert outcome.reason().pools["default"].constraint is Constraint.MIN_VALUES


def test_best_effort_relaxes_to_what_there_is():
    """Cases 191 to 194."""
    greedy = default_pool("greedy", weight=100, requirements=[minimum(3), minimum(4, ZONE)])
    modest = default_pool("modest", weight=10)
    outcome = provision(pod(), pools=[greedy, modest], types=two_sizes(), options=BEST_EFFORT)
    claim = outcome.claim()

    assert claim.pool == "greedy"
    assert claim.min_values_relaxed
    counts = {r.key: r.min_values for r in claim.requirements if r.min_values}
    assert counts == {INSTANCE_TYPE: 2, ZONE: 3}
    assert not provision(pod(), options=BEST_EFFORT).claim().min_values_relaxed


# -- N: nodes that are there -----------------------------------------------------------------------


def test_nodes_that_are_there_come_first_initialised_before_booting():
    """Cases 195, 207, 208."""
    nodes = [existing_node("a-booting", initialized=False), existing_node("b-ready")]
    one = provision(pod(), nodes=nodes)
    many = provision(*pods(50), nodes=nodes)

    assert {name: len(placed) for name, placed in one.plan.existing.items()} == {"b-ready": 1}
    assert many.nodes == 0
    assert many.plan.existing["b-ready"][0].name == "pod-0"


def test_real_nodes_have_only_the_labels_they_have():
    """Cases 196, 198, 209."""
    node = existing_node("old", labels={ZONE: "z2"})
    assert provision(pod(node_selector={ZONE: "z2"}), nodes=[node]).nodes == 0
    assert provision(required(ZONE, "In", "z1", "z2"), nodes=[node]).nodes == 0
    assert provision(pod(node_selector={ZONE: "z1"}), nodes=[node]).nodes == 1
    assert provision(pod(node_selector={SIZE: "small"}), nodes=[node]).nodes == 1
    assert not provision(pod(node_selector={SIZE: "small"}), nodes=[node], pools=[]).scheduled()


def test_taints_ports_and_room_of_nodes_count():
    """Cases 197, 201."""
    full = existing_node("full", available={"cpu": "50m"})
    tainted = existing_node("tainted", taints=["team:NoSchedule"])
    overdrawn = existing_node("overdrawn", available={"memory": "-1"})
    busy = existing_node("busy", bound=[pod("there", host_ports=[80], node_name="busy")])
    asking = pod(host_ports=[80])
    outcome = provision(asking, nodes=[full, tainted, overdrawn, busy])
    assert outcome.plan.existing == {}
    assert provision(pod(tolerations=["team"]), nodes=[tainted]).nodes == 0
    assert provision(pod(), nodes=[busy]).nodes == 0


def test_two_pods_of_one_port_need_two_nodes():
    """Case 37."""
    two = pods(2, shape=pod_shape(host_ports=[80]))
    assert provision(*two).nodes == 2
    mixed = provision(*two, nodes=[existing_node("old")])
    assert (mixed.nodes, len(mixed.plan.existing["old"])) == (1, 1)


def test_an_ordered_machine_is_used_only_for_what_all_its_types_meet():
    """A claim without a node may still land in either zone."""
    from karpenter_core.scheduling.requirements import Requirement, Requirements

    open_zone = Requirements((Requirement.of(ZONE, "In", ("z1", "z2")),))
    ordered = existing_node("ordered", requirements=open_zone, initialized=False)

    assert provision(pod(), nodes=[ordered]).nodes == 0
    assert provision(required(ZONE, "NotIn", "z3"), nodes=[ordered]).nodes == 0
    assert provision(pod(node_selector={ZONE: "z1"}), nodes=[ordered]).nodes == 1


def test_pools_that_can_make_nothing_say_so():
    """Case 214."""
    for requirements in (
        [requirement_spec(INSTANCE_TYPE, "In", "none")],
        [requirement_spec(ARCH, "In", "arm64"), requirement_spec(OS, "In", "darwin")],
        [requirement_spec(ZONE, "In", "nowhere")],
    ):
        why = provision(*pods(3), pools=[default_pool(requirements=requirements)])
        assert "nodepool requirements filtered out all available instance types" in (
            why.reason("pod-0").message
        )


# -- explanations ----------------------------------------------------------------------------------


def test_the_first_constraint_that_fails_is_the_reason():
    """A tainted pool is refused for its taint, whatever else is wrong."""
    pools = [default_pool("tainted", taints=["team:NoSchedule"]), default_pool("plain")]
    why = provision(pod(cpu="1000", node_selector={ZONE: "z1"}), pools=pools).reason()
    assert {name: r.constraint for name, r in why.pools.items()} == {
        "tainted": Constraint.TAINT, "plain": Constraint.RESOURCE,
    }  # fmt: skip
    assert why.pools["plain"].closest == "arm-instance-type"
    assert "ask for at most cpu 15900m" in why.pools["plain"].remedy


def test_sold_out_offerings_are_the_reason():
    """A type that would do, but cannot be bought in the zone asked for."""
    types = [
        fake_type("a", offerings=[offering("z1", "spot", 1.0, available=False),
                                  offering("z2", "spot", 1.0)])
    ]  # fmt: skip
    why = provision(pod(node_selector={ZONE: "z1"}), types=types).reason().pools["default"]
    assert (why.constraint, why.closest) == (Constraint.OFFERING, "a")


def test_default_types_are_what_the_cases_say():
    """The fixtures themselves: six types, prices linear in size."""
    assert isinstance(provision(pod()), Outcome)
    assert len(DEFAULT_TYPES) == 6
    assert len(assorted_types()) == 1344


def test_a_label_nobody_defines_is_not_defined_by_refusing_a_value():
    """Pods that want no `test-key=a` do not make `test-key=b` possible for others."""
    refusing = pod("refusing", cpu="1", required=[node_term(("test-key", "NotIn", "a"))])
    wanting = pod("wanting", node_selector={"test-key": "b"})
    outcome = provision(refusing, wanting)
    assert outcome.scheduled("refusing")
    assert not outcome.scheduled("wanting")
