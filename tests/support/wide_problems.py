"""Draws scheduling problems that use everything at once, and the options to solve them with.

`wide_problem(7)` is a problem of `tests.support.problems` with what that module does not draw: launch
quotas, commitments, node limits, prices of several currencies and sources, devices, gangs, virtual
pods, and large simple deployments, for which the solver looks for cheap mixtures of types.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.api.commitments import Commitment
from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CPU,
    HOSTNAME,
    INSTANCE_TYPE,
    MEMORY,
    NODES,
    ON_DEMAND,
    PRICE_PER_HOUR,
    SPOT,
    SPOT_SHARE,
    ZONE,
)
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.api.prices import Price
from karpenter_core.api.quantities import parse_amount, parse_resources
from karpenter_core.api.records import (
    LOWEST_PRIORITY,
    AffinityTerm,
    LabelSelector,
    TopologySpread,
    VirtualSource,
)
from karpenter_core.scheduling.problem import (
    CommitmentBalance,
    LaunchQuota,
    MinValuesPolicy,
    PackingPolicy,
    PreferencePolicy,
    ReservationPolicy,
    SolveOptions,
)
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.testing.builders import (
    EPOCH,
    catalogue,
    instance_type,
    node_pool,
    offering,
    pod,
    pod_shape,
    problem,
    requirement_spec,
)
from tests.scheduling.devices.builders import (
    allocated,
    claim,
    counter_set,
    device,
    device_pod,
    devices_of,
    gpus,
    inventory,
    request,
    resource_slice,
)
from tests.support.problems import seeded_problem
from tests.support.random_choices import CORES, FAMILY, ZONES

if TYPE_CHECKING:
    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.problem import SchedulingProblem

__all__ = ["market_problem", "wide_options", "wide_problem"]

_RATES: Final = {"EUR": 1.1, "CNY": 0.14}
_BUFFER: Final = VirtualSource(
    api_version="autoscaling.x-k8s.io/v1beta1",
    kind="CapacityBuffer",
    namespace="default",
    name="headroom",
    uid="uid-headroom",
)


def wide_options(seed: int) -> SolveOptions:
    """Draw the options of a seed; most often several are not the usual ones."""
    random = Random(f"options {seed}")
    return SolveOptions(
        packing=random.choice((PackingPolicy.VALUE, PackingPolicy.VALUE, PackingPolicy.FIRST_FIT)),
        preferences=random.choice(
            (PreferencePolicy.RESPECT, PreferencePolicy.RESPECT, PreferencePolicy.IGNORE)
        ),
        min_values=random.choice((MinValuesPolicy.STRICT, MinValuesPolicy.BEST_EFFORT)),
        reservations=random.choice((ReservationPolicy.STRICT, ReservationPolicy.FALLBACK)),
        reserved_capacity=random.random() < 0.85,
        max_instance_types=random.choice((600, 600, 3, 1)),
        exchange_rates=random.choice((_RATES, _RATES, {})),
        node_fee_per_hour=random.choice((0.01, 0.0, 0.2)),
        robust_price_weight=random.choice((0.5, 0.0, 1.0)),
        robust_price_rank=random.choice((15, 3, 1)),
        flexibility_floor=random.choice((15, 3)),
        work_units=random.choice((50, 50, 400, 0)),
    )


def wide_problem(seed: int) -> SchedulingProblem:
    """Make the problem of a seed: one of `seeded_problem` with more, or one of a market."""
    random = Random(f"wide {seed}")
    asked = market_problem(random) if seed % 2 else seeded_problem(10_000 + seed)
    if seed % 4 == 0:
        asked = replace(
            asked,
            catalogues={
                name: replace(
                    sold,
                    instance_types=tuple(_repriced(random, kind) for kind in sold.instance_types),
                )
                for name, sold in asked.catalogues.items()
            },
        )
    if random.random() < 0.3:
        asked = replace(
            asked, quotas=tuple(_quota(random, n) for n in range(random.choice((1, 2))))
        )
    if random.random() < 0.25:
        asked = replace(
            asked, commitments=tuple(_commitment(random, n) for n in range(random.choice((1, 3))))
        )
    if random.random() < 0.2:
        asked = replace(asked, max_new_nodes=random.choice((0, 1, 2, 4)))
    if random.random() < 0.3:
        asked = _with_virtual_pods(random, asked)
    if random.random() < 0.15:
        asked = _with_devices(random, asked)
    return asked


# -- markets ---------------------------------------------------------------------------------------


def market_problem(random: Random) -> SchedulingProblem:
    """Draw some deployments of many pods, for pools that sell dozens of types."""
    kinds = [
        _kind(random, f"{family}{cores:02}", family, cores, ratio)
        for family, ratio in (("c", 2), ("m", 4), ("r", 8))
        for cores in (1, 2, 4, 8, 16, 32)
        if random.random() < 0.8
    ] or [_kind(random, "m04", "m", 4, 4)]
    pools = [_pool(random, name, number) for number, name in enumerate(("first", "second"))]
    pools = pools[: random.choice((1, 1, 2))]
    members = [
        made
        for number in range(random.choice((1, 2, 3, 5, 8)))
        for made in _deployment(random, f"app-{number}")
    ]
    asked = problem(
        members,
        pools=pools,
        catalogues={made.name: catalogue(*kinds) for made in pools},
        well_known=(FAMILY, CORES),
    )
    nodes = seeded_problem(random.randrange(1000)).nodes if random.random() < 0.3 else ()
    return replace(asked, nodes=nodes)


def _pool(random: Random, name: str, number: int):
    requirements = []
    if random.random() < 0.2:
        requirements.append(requirement_spec(CAPACITY_TYPE, "In", random.choice((SPOT, ON_DEMAND))))
    if random.random() < 0.2:
        requirements.append(requirement_spec(CORES, "Gt", random.choice(("1", "3"))))
    if random.random() < 0.2:
        key = random.choice((INSTANCE_TYPE, FAMILY, ZONE))
        requirements.append(requirement_spec(key, "Exists", min_values=random.choice((1, 2, 3, 5))))
    return node_pool(
        name,
        weight=random.choice((None, 10 * number)),
        annotations=random.choice(({}, {}, {}, {SPOT_SHARE: random.choice(("30%", "70%"))})),
        requirements=requirements,
        limits=random.choice(
            (
                *[{}] * 9,
                {"cpu": "33"},
                {"memory": "100Gi"},
                {"nodes": "3"},
                {PRICE_PER_HOUR: "1.2"},
                {"cpu": "64", PRICE_PER_HOUR: "2"},
            )
        ),
        taints=("soft:PreferNoSchedule",) if random.random() < 0.1 else (),
    )


def _kind(random: Random, name: str, family: str, cores: int, ratio: int) -> InstanceType:
    base = cores * 0.03 + cores * ratio * 0.004
    sold = [
        _offering(random, zone, kind, base * factor)
        for zone in ZONES
        for kind, factor in ((ON_DEMAND, 1.0), (SPOT, random.choice((0.3, 0.5, 0.8))))
        if random.random() < 0.85
    ]
    return instance_type(
        name,
        cpu=str(cores),
        memory=f"{cores * ratio}Gi",
        pods=random.choice(("110", "30", "8")),
        offerings=sold or [offering("zone-a", ON_DEMAND, base)],
        labels={FAMILY: family, CORES: str(cores)},
    )


def _offering(random: Random, zone: str, kind: str, price: float) -> Offering:
    made = offering(
        zone,
        kind,
        round(price * random.choice((1, 1, 1.05, 1.3)), 5),
        available=random.random() < 0.95,
    )
    if random.random() < 0.1:
        made = replace(made, interruption_risk=random.choice((0.05, 0.3)))
    if random.random() < 0.05:
        made = replace(made, capacity_override={"memory": 2**33})
    return made


def _deployment(random: Random, name: str):
    cpu = random.choice(("100m", "250m", "700m", "1", "1900m", "3", "6"))
    memory = random.choice(("64Mi", "500Mi", "1Gi", "3Gi", "6Gi", "20Gi"))
    selects = LabelSelector(match_labels={"app": name})
    shape = pod_shape(
        cpu=cpu,
        memory=memory,
        labels={"app": name},
        node_selector=random.choice(
            (
                {},
                {},
                {},
                {},
                {ZONE: random.choice(ZONES)},
                {CAPACITY_TYPE: ON_DEMAND},
                {FAMILY: "c"},
            )
        ),
        priority=random.choice((0, 0, 100)),
    )
    match random.randrange(10):
        case 0 | 1:
            shape = msgspec.structs.replace(
                shape,
                topology_spread=tuple(
                    TopologySpread(
                        topology_key=key,
                        max_skew=random.choice((1, 2, 4)),
                        when_unsatisfiable=random.choice(("DoNotSchedule", "ScheduleAnyway")),
                        selector=selects,
                        min_domains=random.choice((None, None, 3)),
                    )
                    for key in random.choice(
                        ((ZONE,), (HOSTNAME,), (ZONE, HOSTNAME), (CAPACITY_TYPE,))
                    )
                ),
            )
            shape = msgspec.structs.replace(
                shape,
                topology_spread=tuple(
                    replaced
                    if replaced.when_unsatisfiable == "DoNotSchedule"
                    else msgspec.structs.replace(replaced, min_domains=None)
                    for replaced in shape.topology_spread
                ),
            )
        case 2:
            term = AffinityTerm(topology_key=HOSTNAME, selector=selects)
            shape = msgspec.structs.replace(shape, pod_anti_affinity=(term,))
        case 3:
            term = AffinityTerm(topology_key=random.choice((ZONE, HOSTNAME)), selector=selects)
            shape = msgspec.structs.replace(shape, pod_affinity=(term,))
        case _:
            pass
    count = random.choice((1, 2, 5, 12, 40, 120))
    return tuple(pod(f"{name}-{n}", shape=shape, created=EPOCH) for n in range(count))


# -- prices, quotas, commitments -------------------------------------------------------------------


def _repriced(random: Random, kind: InstanceType) -> InstanceType:
    """Change some prices: another currency, a source that changed them, a risk."""
    return replace(kind, offerings=tuple(_resold(random, sold) for sold in kind.offerings))


def _resold(random: Random, sold: Offering) -> Offering:
    match random.randrange(8):
        case 0:
            return replace(sold, price=Price(sold.price.amount * 7, "CNY"))
        case 1:
            return replace(
                sold,
                price=Price(sold.price.amount * 0.8, sold.price.currency),
                list_price=sold.price,
                price_source='plug-in "rebates"',
            )
        case 2:
            return replace(sold, interruption_risk=random.choice((0.05, 0.2)))
        case _:
            return sold


def _quota(random: Random, number: int) -> LaunchQuota:
    limits = random.choice(
        (
            {CPU: "12"},
            {MEMORY: "40Gi"},
            {NODES: "2"},
            {PRICE_PER_HOUR: "0.9"},
            {CPU: "40", NODES: "9"},
        )
    )
    requirements = random.choice(
        (
            (),
            (Requirement.of(ZONE, "In", (random.choice(ZONES),)),),
            (Requirement.of(CAPACITY_TYPE, "In", (SPOT,)),),
            (Requirement.of(FAMILY, "NotIn", ("c",)),),
        )
    )
    return LaunchQuota(
        name=f'CapacityQuota "team-{number}"',
        requirements=Requirements(requirements),
        limits=parse_resources(limits),
        used=parse_resources(random.choice(({}, {}, {CPU: "3", NODES: "1"}))),
        refusal="its node pools changed" if random.random() < 0.08 else "",
    )


def _commitment(random: Random, number: int) -> CommitmentBalance:
    resource, amount = random.choice(
        ((CPU, "8"), (CPU, "30"), (MEMORY, "32Gi"), (NODES, "2"), (PRICE_PER_HOUR, "0.5"))
    )
    specs = random.choice(
        (
            (),
            (RequirementSpec(key=FAMILY, operator="In", values=("m",)),),
            (RequirementSpec(key=ZONE, operator="In", values=ZONES[:2]),),
        )
    )
    terms = {"discount": random.choice((0.2, 0.6, 1.0))}
    if resource != PRICE_PER_HOUR and random.random() < 0.6:
        terms = {"price": random.choice((0.0, 0.005, 0.03))}
    made = Commitment(
        name=f"plan-{number}",
        requirements=specs,
        resource=resource,
        amount=parse_amount(resource, amount),
        **terms,
    )
    used = random.choice((0, 0, made.amount // 3, made.amount))
    return CommitmentBalance(
        commitment=made, requirements=Requirements.from_specs(specs), used=used
    )


# -- virtual pods and devices ----------------------------------------------------------------------


def _with_virtual_pods(random: Random, asked: SchedulingProblem) -> SchedulingProblem:
    """Add the pods of a buffer, some of them on nodes already."""
    shape = msgspec.structs.replace(
        pod_shape(
            cpu=random.choice(("500m", "2")),
            memory="1Gi",
            priority=random.choice((LOWEST_PRIORITY, LOWEST_PRIORITY, -10)),
        ),
        virtual_source=_BUFFER,
    )
    members = [pod(f"headroom-{n}", shape=shape) for n in range(random.choice((1, 3, 8)))]
    covered = {}
    for node in asked.nodes[:1]:
        covered[node.name] = (pod("headroom-covered", shape=shape),)
    return replace(asked, pods=(*asked.pods, *members), covered_pods=covered)


def _with_devices(random: Random, asked: SchedulingProblem) -> SchedulingProblem:
    """Give types devices, nodes slices, and add pods with ResourceClaims."""
    count = random.choice((1, 2, 4))
    shared = counter_set("board", memory="40")
    templates = random.choice(
        (
            devices_of(*gpus(count, model="a")),
            devices_of(
                *(
                    device(f"gpu-{n}", counters={"board": {"memory": "20"}}, numa=n % 2)
                    for n in range(count)
                ),
                counter_sets=(shared,),
            ),
            devices_of(*(device(f"gpu-{n}", capacity={"memory": "16"}) for n in range(count))),
        )
    )
    catalogues = {
        name: replace(
            sold,
            instance_types=tuple(
                replace(kind, devices=templates) if random.random() < 0.6 else kind
                for kind in sold.instance_types
            ),
        )
        for name, sold in asked.catalogues.items()
    }
    claims, members = [], []
    for number in range(random.choice((1, 2, 4))):
        name = f"claim-{number}"
        selectors = random.choice(((), (), ('device.attributes["gpu.example.com"].model == "a"',)))
        claims.append(
            claim(
                name,
                request(count=random.choice((1, 1, 2)), selectors=selectors),
                match=random.choice((None, None, "numa")),
            )
        )
        members += [
            device_pod(f"trains-{number}-{n}", name, cpu=random.choice(("500m", "3")))
            for n in range(random.choice((1, 2)))
        ]
    slices = ()
    if asked.nodes:
        node = asked.nodes[0].name
        slices = (resource_slice(*gpus(2, model="a"), node=node),)
        claims.append(allocated("held", "gpu-0", pool=node, node=node))
    return replace(
        asked,
        pods=(*asked.pods, *members),
        catalogues=catalogues,
        devices=inventory(*claims, slices=slices),
    )
