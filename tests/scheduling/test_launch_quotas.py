"""Limits of price and quotas over NodePools, inside a scheduling pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CPU,
    INSTANCE_TYPE,
    MEMORY,
    NODE_POOL,
    NODES,
    PRICE_PER_HOUR,
    ZONE,
)
from karpenter_core.api.quantities import LARGEST_AMOUNT, parse_amount, parse_resources
from karpenter_core.scheduling.offerings import highest_price_amount
from karpenter_core.scheduling.problem import LaunchQuota, PackingPolicy, SolveOptions
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import (
    catalogue,
    instance_type,
    node_pool,
    offering,
    pod,
    problem,
    standard_catalogue,
)
from tests.properties import with_examples

SMALL = instance_type("small", cpu="2", memory="8Gi", overhead={}, price=0.1)
LARGE = instance_type("large", cpu="8", memory="32Gi", overhead={}, price=0.3)
TYPES = catalogue(SMALL, LARGE)
RATES = {"USD": 1.0}
PACKINGS = [PackingPolicy.VALUE, PackingPolicy.FIRST_FIT]


def quota(name="team", *, select=(), used=None, refusal="", **limits):
    """Make a quota; `price` in currency per hour."""
    read = {PRICE_PER_HOUR if key == "price" else key: value for key, value in limits.items()}
    return LaunchQuota(
        name=f'CapacityQuota "{name}"',
        requirements=Requirements(Requirement.of(*one) for one in select),
        limits=parse_resources(read),
        used=parse_resources(used or {}),
        refusal=refusal,
    )


def plan_of(pods, *quotas, pools=None, types=TYPES, packing=PackingPolicy.VALUE):
    asked = replace(problem(pods, pools=pools, catalogue=types), quotas=quotas)
    return solve(asked, SolveOptions(packing=packing))


def web(count, *, cpu="1500m", **fields):
    return [pod(f"web-{n}", cpu=cpu, **fields) for n in range(count)]


def reasons(plan):
    return {
        rejection.detail for why in plan.unschedulable.values() for rejection in why.pools.values()
    }


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_price_limit_keeps_the_most_expensive_launch_of_a_pass_below_it(packing):
    """Each node may cost 0.1 on demand, so three of them fit into 0.35 an hour."""
    pool = node_pool(limits={PRICE_PER_HOUR: "0.35"})
    plan = plan_of(web(6), pools=[pool], types=catalogue(SMALL), packing=packing)

    assert (len(plan.claims), len(plan.unschedulable)) == (3, 3)
    (reason,) = reasons(plan)
    assert "(karpenter.sh/price-per-hour: 0.05 of 0.35 left)" in reason


def test_a_claim_near_a_price_limit_lists_no_type_that_could_exceed_it():
    """A large node may cost 0.3 an hour on demand, though it is cheaper as spot."""
    plan = plan_of(web(1), pools=[node_pool(limits={PRICE_PER_HOUR: "0.2"})])

    assert [claim.instance_types for claim in plan.claims] == [("small",)]


def test_a_pod_that_requires_spot_is_counted_at_the_spot_price():
    """0.04 an hour for a small node."""
    pool = node_pool(limits={PRICE_PER_HOUR: "0.05"})
    plan = plan_of(web(1, node_selector={CAPACITY_TYPE: "spot"}), pools=[pool])

    assert len(plan.claims) == 1


def test_a_type_with_an_offering_of_unknown_price_is_outside_every_price_limit():
    """Unknown is not 0; a claim that cannot become that offering has a price."""
    partly = instance_type(
        "partly",
        cpu="2",
        overhead={},
        offerings=[offering(price=0.1), offering(capacity_type="spot", price=float("nan"))],
    )
    pool = node_pool(limits={PRICE_PER_HOUR: "1000"})
    either = plan_of(web(1), pools=[pool], types=catalogue(partly))
    on_demand = web(1, node_selector={CAPACITY_TYPE: "on-demand"})

    assert either.claims == ()
    assert all("the price of partly is not known" in reason for reason in reasons(either))
    assert len(plan_of(on_demand, pools=[pool], types=catalogue(partly)).claims) == 1


def test_a_price_without_exchange_rate_is_outside_every_price_limit():
    """A limit is in the reporting currency."""
    foreign = instance_type("foreign", cpu="2", overhead={}, price=0.1, currency="CNY")
    plan = plan_of(
        web(1), pools=[node_pool(limits={PRICE_PER_HOUR: "1000"})], types=catalogue(foreign)
    )

    assert plan.claims == ()
    assert all("the price of foreign is not known" in reason for reason in reasons(plan))


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_quota_counts_the_claims_of_all_its_pools_in_one_pass(packing):
    """Two NodePools, five cores together."""
    pools = [node_pool(name, taints=[f"for={name}:NoSchedule"]) for name in ("blue", "green")]
    pods = [
        pod(f"{name}-{n}", cpu="1500m", tolerations=[f"for={name}:NoSchedule"])
        for name in ("blue", "green")
        for n in range(3)
    ]
    plan = plan_of(pods, quota(cpu="5"), pools=pools, types=catalogue(SMALL), packing=packing)

    assert (len(plan.claims), len(plan.unschedulable)) == (2, 4)
    assert any('cpu: 1 of 5 left in CapacityQuota "team"' in reason for reason in reasons(plan))


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_quota_of_nodes_counts_each_claim(packing):
    """Large nodes are used where there may be only two."""
    plan = plan_of(web(8), quota(nodes="2"), packing=packing)

    assert (len(plan.claims), len(plan.unschedulable)) == (2, 0)


def test_a_quota_counts_existing_instances():
    """Four of five cores are taken."""
    plan = plan_of(web(1), quota(cpu="5", used={"cpu": "4"}))

    assert plan.claims == ()


def test_a_quota_of_other_nodes_changes_nothing():
    """Neither by a label of another NodePool nor by one that no node has."""
    others = [
        quota("pool", select=[(NODE_POOL, "In", ("other",))], cpu="0"),
        quota("label", select=[("example.com/team", "In", ("data",))], cpu="0"),
        quota("absent", select=[("example.com/team", "Exists", ())], cpu="0"),
    ]

    assert len(plan_of(web(1), *others).claims) == 1


@pytest.mark.parametrize(
    "select",
    [
        (NODE_POOL, "In", ("default",)),
        ("example.com/team", "In", ("data",)),
        ("example.com/other", "DoesNotExist", ()),
        ("example.com/team", "NotIn", ("web",)),
    ],
)
def test_a_quota_counts_by_labels_of_the_template(select):
    """Known before the launch."""
    pool = node_pool(labels={"example.com/team": "data"})

    assert plan_of(web(1), quota(select=[select], cpu="1"), pools=[pool]).claims == ()


def test_an_exhausted_quota_of_a_zone_leaves_the_other_zones():
    """The claim is kept out of the zone, for both packings."""
    plan = plan_of(web(2), quota(select=[(ZONE, "In", ("zone-a",))], cpu="0"))

    assert plan.claims
    for claim in plan.claims:
        zones = Requirements(claim.requirements).get(ZONE)
        assert not zones.has("zone-a")
        assert zones.has("zone-b")


def test_an_exhausted_quota_of_an_instance_type_leaves_the_others():
    """The type is not listed."""
    plan = plan_of(web(1), quota(select=[(INSTANCE_TYPE, "In", ("small",))], nodes="0"))

    assert [claim.instance_types for claim in plan.claims] == [("large",)]


def test_an_exhausted_quota_of_spot_leaves_on_demand():
    """And nothing for a pod that asks for spot."""
    spot = quota(select=[(CAPACITY_TYPE, "In", ("spot",))], nodes="0")
    served = plan_of(web(1), spot)
    asking = plan_of(web(1, node_selector={CAPACITY_TYPE: "spot"}), spot)

    assert [claim.cheapest.capacity_type for claim in served.claims] == ["on-demand"]
    assert asking.claims == ()


def test_every_quota_that_may_count_a_node_must_allow_it():
    """The tighter one decides."""
    plan = plan_of(
        web(4), quota("wide", nodes="3"), quota("tight", cpu="2"), types=catalogue(SMALL)
    )

    assert len(plan.claims) == 1


def test_an_unreadable_quota_refuses_its_pools_with_the_reason():
    """The other NodePool serves the pods that it can."""
    pools = [node_pool("data", weight=10), node_pool("web")]
    why = 'CapacityQuota "team": spec.selector: operator "Like" is not known'
    broken = quota(select=[(NODE_POOL, "In", ("data",))], refusal=why)
    served = plan_of(web(1), broken, pools=pools)
    refused = plan_of(web(1, node_selector={NODE_POOL: "data"}), broken, pools=pools)

    assert [claim.pool for claim in served.claims] == ["web"]
    assert any(why in reason for reason in reasons(refused))


def test_quotas_that_no_new_node_reaches_leave_a_plan_as_it_is():
    """Claims keep their list of types where limits are ample."""
    pods = web(9)
    free, bounded = plan_of(pods), plan_of(pods, quota(cpu="10000", nodes="500", price="100000"))

    assert [c.instance_types for c in free.claims] == [c.instance_types for c in bounded.claims]


# -- the property: whatever a claim becomes, no limit is exceeded -----------------------------

SELECTORS = (
    (),
    ((NODE_POOL, "In", ("first",)),),
    ((ZONE, "In", ("zone-a",)),),
    ((ZONE, "NotIn", ("zone-a",)),),
    ((CAPACITY_TYPE, "In", ("spot",)),),
    (("example.com/family", "In", ("c", "m")), (ZONE, "In", ("zone-a", "zone-b"))),
    (("example.com/team", "Exists", ()),),
    (("example.com/team", "DoesNotExist", ()),),
    (("example.com/team", "In", ("data",)),),
)
POOL_REQUIREMENTS = (
    (),
    ((CAPACITY_TYPE, "In", "on-demand"),),
    ((ZONE, "In", "zone-a"),),
)
AMOUNTS = {
    "cpu": st.integers(0, 40).map(str),
    "memory": st.integers(0, 160).map(lambda amount: f"{amount}Gi"),
    "nodes": st.integers(0, 6).map(str),
    PRICE_PER_HOUR: st.integers(0, 200).map(lambda cents: f"{cents / 100:.2f}"),
}


def limits_of(keys):
    return st.fixed_dictionaries({}, optional={key: AMOUNTS[key] for key in keys})


@st.composite
def bounded_problems(draw):
    """Draw limits of two NodePools, quotas and pods, as plain data for `read_problem`."""
    pools = [
        (draw(limits_of(AMOUNTS)), draw(st.sampled_from(POOL_REQUIREMENTS)))
        for _ in ("first", "second")
    ]
    quotas = draw(
        st.lists(
            st.tuples(st.sampled_from(SELECTORS), limits_of(AMOUNTS), st.integers(0, 4000)),
            max_size=3,
        )
    )
    pods = draw(
        st.lists(
            st.tuples(
                st.sampled_from(("200m", "900m", "2", "5")),
                st.sampled_from(("500Mi", "3Gi", "12Gi")),
                st.sampled_from(({}, {ZONE: "zone-a"}, {CAPACITY_TYPE: "spot"})),
                st.integers(1, 8),
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda drawn: drawn[0],
        )
    )
    return pools, quotas, pods, draw(st.booleans())


def read_problem(drawn):
    """Make the problem of plain data."""
    pools, quotas, pods, is_small = drawn
    made = problem(
        [
            pod(f"{cpu}-{n}", cpu=cpu, memory=memory, node_selector=selector)
            for cpu, memory, selector, count in pods
            for n in range(count)
        ],
        pools=[
            node_pool(
                name,
                limits=limits,
                labels={"example.com/team": "data"} if name == "first" else None,
                requirements=requirements,
            )
            for name, (limits, requirements) in zip(("first", "second"), pools, strict=True)
        ],
        catalogue=TYPES if is_small else standard_catalogue(),
    )
    read = (
        LaunchQuota(
            name=f'CapacityQuota "{number}"',
            requirements=Requirements(Requirement.of(*one) for one in select),
            limits=parse_resources(limits),
            used={CPU: used},
        )
        for number, (select, limits, used) in enumerate(quotas)
    )
    return replace(made, quotas=tuple(read))


def largest_outcome(claim, types, selected=None):
    """Return the most that a claim's node may take, of what `selected` requirements count."""
    requirements = Requirements(claim.requirements)
    outcomes = [
        (it, offered)
        for it in types.instance_types
        if it.name in claim.instance_types
        for offered in it.offerings
        if requirements.compatible(offered.requirements, allow_undefined={ZONE, CAPACITY_TYPE})
        and (selected is None or _selects(selected, claim, it, offered))
    ]
    if not outcomes:
        return dict.fromkeys((CPU, MEMORY, NODES, PRICE_PER_HOUR), 0)
    return {
        CPU: max(it.capacity[CPU] for it, _ in outcomes),
        MEMORY: max(it.capacity[MEMORY] for it, _ in outcomes),
        NODES: 1,
        PRICE_PER_HOUR: max(
            parse_amount(PRICE_PER_HOUR, f"{offered.price.amount:.6f}") for _, offered in outcomes
        ),
    }


def _selects(selected, claim, it, offered):
    labels = {
        **{r.key: next(iter(r.values)) for r in it.requirements.values() if len(r.values) == 1},
        **claim.labels,
        NODE_POOL: claim.pool,
        ZONE: offered.zone,
        CAPACITY_TYPE: offered.capacity_type,
        INSTANCE_TYPE: it.name,
    }
    return Requirements.from_labels(labels).compatible(selected)


def excesses(asked, plan):
    """Return the limits that some outcome of a plan exceeds."""
    found = []
    for pool in asked.pools:
        claims = [claim for claim in plan.claims if claim.pool == pool.name]
        outcomes = [largest_outcome(claim, asked.catalogues[pool.name]) for claim in claims]
        found += [
            (pool.name, name)
            for name, limit in parse_resources(pool.spec.limits).items()
            if outcomes and sum(one[name] for one in outcomes) > limit
        ]
    for one in asked.quotas:
        outcomes = [
            largest_outcome(claim, asked.catalogues[claim.pool], one.requirements)
            for claim in plan.claims
        ]
        for name, limit in one.limits.items():
            taken = sum(outcome[name] for outcome in outcomes)
            if taken and taken + one.used.get(name, 0) > limit:
                found.append((one.name, name))
    return found


@with_examples(25)
@given(drawn=bounded_problems(), packing=st.sampled_from(PACKINGS))
def test_no_outcome_of_a_plan_exceeds_any_limit(drawn, packing):
    """Whichever of its types and offerings each claim becomes."""
    asked = read_problem(drawn)
    plan = solve(asked, SolveOptions(packing=packing))

    assert excesses(asked, plan) == []


def test_the_check_of_outcomes_finds_an_excess():
    """Two nodes where the quota has one."""
    asked = replace(problem(web(2), catalogue=catalogue(SMALL)), quotas=(quota(nodes="1"),))

    assert excesses(asked, solve(replace(asked, quotas=()))) == [('CapacityQuota "team"', "nodes")]


def test_the_highest_price_counts_offerings_out_of_stock():
    """They may be back by the time of the launch."""
    item = instance_type(
        "x",
        offerings=[offering("zone-a", price=1.0), offering("zone-b", price=2.0, available=False)],
    )

    assert highest_price_amount([item], Requirements(), RATES) == 2_000_000
    assert highest_price_amount([item], Requirements(), {}) == LARGEST_AMOUNT
