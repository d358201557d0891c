"""Random clusters with possible savings, for property tests."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import msgspec
from hypothesis import strategies as st

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    DO_NOT_DISRUPT,
    HOSTNAME,
    ON_DEMAND,
    SAVINGS_FLOOR,
    SPOT,
    ZONE,
)
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.api.nodepool import Budget
from karpenter_core.api.records import AffinityTerm, LabelSelector, TopologySpread
from karpenter_core.testing.builders import EPOCH, offering, pod
from karpenter_core.testing.state_builders import disruption_budget, with_claim_conditions
from tests.disruption.small_clusters import NOW, box, kind, pool, runs

ZONES = ("zone-a", "zone-b")
APPS = ("web", "api", "db")
REASONS = ("Underutilized", "Empty", "Drifted")


def _market(random):
    types = []
    for cores in (1, 2, 4, 6, 8, 12, 16):
        price = round(cores * random.choice((0.08, 0.1, 0.1, 0.12)), 3)
        offerings = [
            offering(zone, capacity_type, round(price * factor * random.choice((1, 1, 1.2, 3)), 4))
            for zone in ZONES
            for capacity_type, factor in ((ON_DEMAND, 1.0), (SPOT, 0.4))
            if random.random() < 0.9
        ]
        types.append(kind(f"c{cores:02}", cores, price, offerings=offerings))
    return tuple(types)


def _pool(random, name):
    budgets = [
        Budget(
            nodes=random.choice(("100%", "100%", "50%", "30%", "3", "1", "0")),
            reasons=random.choice((None, None, tuple(random.sample(REASONS, 2)))),
        )
        for _ in range(random.choice((1, 1, 2)))
    ]
    floor = random.choice((None, None, "0", "20%", "0.15"))
    return pool(
        name,
        budgets=budgets,
        window=random.choice(("0s", "0s", "1m")),
        policy=random.choice(
            (*["WhenEmptyOrUnderutilized"] * 5, "Balanced", "Balanced", "WhenEmpty")
        ),
        notes={} if floor is None else {SAVINGS_FLOOR: floor},
        requirements=random.choice(
            ((), (), [(CAPACITY_TYPE, "In", ON_DEMAND)], [(ZONE, "In", "zone-a")])
        ),
    )


def draw_node(random, name, of, pools, drifted):
    its_node, claim = box(
        name,
        of,
        pool=random.choice(pools).name,
        zone=random.choice(ZONES),
        capacity_type=random.choice((ON_DEMAND, ON_DEMAND, SPOT)),
        settled=random.random() < 0.85,
        stage="Registered" if random.random() < 0.05 else "Initialized",
        deleted=NOW if random.random() < 0.05 else None,
        termination_grace_period=random.choice((None, None, "300s")),
    )
    if random.random() < drifted:
        since = EPOCH + timedelta(seconds=random.randrange(100))
        claim = with_claim_conditions(claim, DRIFTED, now=since)
    return its_node, claim


def draw_pod(random, name, on, room_milli):
    app = random.choice(APPS)
    cpu = min(random.choice((100, 250, 500, 1000, 1500, 3000)), room_milli)
    annotations = {DO_NOT_DISRUPT: "true"} if random.random() < 0.05 else None
    made = runs(name, on, cpu=f"{cpu}m", labels={"app": app}, annotations=annotations)
    selects = LabelSelector(match_labels={"app": app})
    changes = {}
    match random.randrange(12):
        case 0:
            changes["pod_anti_affinity"] = (AffinityTerm(topology_key=HOSTNAME, selector=selects),)
        case 1 | 2:
            changes["topology_spread"] = (
                TopologySpread(
                    topology_key=random.choice((ZONE, HOSTNAME)),
                    max_skew=random.choice((1, 2)),
                    when_unsatisfiable="DoNotSchedule",
                    selector=selects,
                ),
            )
        case 3:
            changes["node_selector"] = {ZONE: random.choice(ZONES)}
        case _:
            pass
    return cpu, msgspec.structs.replace(made, shape=msgspec.structs.replace(made.shape, **changes))


def drawn(random, *, drifted=0.15, spare=0.0):
    """Draw the objects of a cluster, and the market that its pools buy from.

    `drifted` is the share of nodes that have drifted, `spare` the share of a node that its pods
    leave free at least.
    """
    market = _market(random)
    pools = [_pool(random, name) for name in ("blue", "green")[: random.choice((1, 2))]]
    objects = list(pools)
    for n in range(random.randrange(2, 10)):
        of = random.choice(market)
        objects += draw_node(random, f"n-{n}", of, pools, drifted)
        room = int(of.capacity["cpu"] * (1 - spare))
        for m in range(random.choice((0, 1, 2, 2, 3, 5))):
            if room < 100:
                break
            cpu, made = draw_pod(random, f"p-{n}-{m}", f"n-{n}", room)
            room -= cpu
            objects.append(made)
    for n in range(random.choice((0, 0, 0, 1, 3))):
        cpu = f"{random.choice((250, 1000, 3000))}m"
        objects.append(pod(f"waits-{n}", cpu=cpu, labels={"app": random.choice(APPS)}))
    if random.random() < 0.2:
        objects.append(
            disruption_budget(labels={"app": random.choice(APPS)}, allowed=random.choice((0, 1)))
        )
    return objects, market


def clusters(**shares):
    """Draw `(objects, market)` by a seed: clusters of evenly drawn choices have most to save."""
    return st.integers(0, 2**32 - 1).map(lambda seed: drawn(Random(seed), **shares))
