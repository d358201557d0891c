"""Contents of a node: labels, taints, resources, ports, volumes, limits and reservations."""

from __future__ import annotations

from tests.verifier.places import node_options, pool_allows, pool_labels, type_variants
from tests.verifier.rules import (
    CAPACITY_TYPE,
    DEPRECATED,
    HARD_EFFECTS,
    INSTANCE_TYPE,
    ZONE,
    add,
    asked_labels,
    meets,
    over,
    port_conflicts,
    quantities,
    requests,
    selects_node,
    tolerates_all,
)

# -- existing nodes --------------------------------------------------------------------------------


def existing_node(problem, node, pods):
    if node.closed and pods:
        yield f"takes no more pods, and got {[pod.name for pod in pods]}"
    for labels in node_options(node):
        for pod in distinct(pods):
            yield from may_run(pod, labels, node.taints)
        yield from _volumes_mountable(problem, pods, labels)
    used = dict.fromkeys(node.available, 0)
    for pod in pods:
        add(used, requests(pod.shape))
    yield from over(used, node.available)
    gone = {pod.uid for pod in problem.pods}
    ports = list(node.host_ports)
    for bound in node.pods:
        if bound.uid not in gone:
            ports += bound.shape.host_ports
    yield from port_conflicts(ports, pods)
    yield from _attach_limits(problem, node, pods)


def _attach_limits(problem, node, pods):
    attached = {driver: set(claims) for driver, claims in node.volumes.items()}
    for pod in pods:
        if pod.uid in problem.volumes:
            for driver, claims in problem.volumes[pod.uid].attached.items():
                attached.setdefault(driver, set()).update(claims)
    grown = {driver for driver in attached if attached[driver] - node.volumes.get(driver, set())}
    for driver in sorted(grown & set(node.volume_limits)):
        if len(attached[driver]) > node.volume_limits[driver]:
            yield (
                f"{driver} attaches {len(attached[driver])} volumes, "
                f"the limit is {node.volume_limits[driver]}"
            )


# -- planned claims --------------------------------------------------------------------------------


def claim_variants(problem, claim):
    """List what a claim may become, by type; offerings too small for its pods are left alone.

    The provider knows the requests: of a type whose offerings give different variants it launches
    one that holds them. When none does, all are returned, so that the shortage is reported.
    """
    types = {t.name: t for t in problem.catalogues[claim.pool].instance_types}
    taints = pool_of(problem, claim).spec.template.spec.taints
    required = {r.key: r for r in claim.requirements}
    result = {}
    for name in claim.instance_types:
        listed = type_variants(types[name], claim.labels, required)
        large = [m for m in listed if not list(_overfull(problem, claim.pods, m, taints))]
        result[name] = large or listed
    return result


def pool_of(problem, claim):
    return next(pool for pool in problem.pools if pool.name == claim.pool)


def planned_claim(problem, claim, by_type, *, strict_min_values):
    pool = pool_of(problem, claim)
    for name, listed in by_type.items():
        if not listed:
            yield f"{name} cannot be bought under the claim's requirements"
        for variant in listed:
            texts = variant_faults(problem, pool, claim.pods, variant)
            yield from (f"{name}: {text}" for text in texts)
    yield from _written_down(problem, claim, by_type)
    if strict_min_values:
        yield from _min_values(problem, pool, claim)


def variant_faults(problem, pool, pods, variant):
    """Yield what is wrong with putting pods on one variant of a pool."""
    taints = pool.spec.template.spec.taints
    for pod in distinct(pods):
        yield from may_run(pod, variant.labels, taints)
    yield from _overfull(problem, pods, variant, taints)
    ports = [
        port
        for daemon in _daemons_on(problem, variant.labels, taints)
        for port in daemon.shape.host_ports
    ]
    yield from port_conflicts(ports, pods)
    yield from _volumes_mountable(problem, pods, variant.labels)
    yield from _of_the_pool(problem, pool, variant.labels)


def _of_the_pool(problem, pool, labels):
    for key, value in pool_labels(pool).items():
        if labels.get(key) != value:
            yield f"the pool says {key}={value}, the node {labels.get(key)}"
    for requirement in pool.spec.template.spec.requirements:
        key = DEPRECATED.get(requirement.key, requirement.key)
        if key not in labels and key in problem.well_known:
            continue  # the provider says nothing of it, so the node may get it yet
        if not pool_allows(pool, key, labels.get(key)):
            yield f"the pool requires {requirement}, the node has {labels.get(key)}"


def _overfull(problem, pods, variant, taints):
    used = {}
    for daemon in _daemons_on(problem, variant.labels, taints):
        # One that requests a device that the node lacks waits there, and keeps no pod off.
        present = {
            n: a for n, a in requests(daemon.shape).items() if variant.capacity.get(n, 0) > 0
        }
        add(used, present)
    for pod in pods:
        add(used, requests(pod.shape))
    yield from over(used, variant.room)


def _daemons_on(problem, labels, taints):
    return [
        daemon
        for daemon in problem.daemons
        if tolerates_all(daemon.shape, taints) and selects_node(daemon.shape, labels)
    ]


def _written_down(problem, claim, by_type):
    """Check what the claim says of itself: order and price of its types, its requirements."""
    # Prices that differ by rounding alone are equal to plans, which write nine decimals.
    prices = [round(min(m.price for m in listed), 9) for listed in by_type.values() if listed]
    if not _fit_by_offering(problem, by_type):
        if prices != sorted(prices):
            yield "types are not sorted by price"
        if prices and abs(prices[0] - claim.cheapest.price_per_hour) > 1e-9:
            yield f"cheapest is {claim.cheapest.price_per_hour}, should be {prices[0]}"
    if claim.cheapest.instance_type != claim.instance_types[0]:
        yield "the cheapest type is not the first"
    required = {r.key: r for r in claim.requirements}
    if set(required[INSTANCE_TYPE].values) != set(claim.instance_types):
        yield "requirement and list of instance types differ"


def _fit_by_offering(problem, by_type):
    """Whether daemons that select zones decide which of the variants of one type are large enough.

    They are charged by type, whatever they say of zones, so plans may leave out what would do.
    """
    differ = any(
        variant.offering.capacity_override or variant.offering.overhead_override
        for listed in by_type.values()
        for variant in listed
    )
    return differ and any(
        {ZONE, CAPACITY_TYPE} & asked_labels(daemon.shape) for daemon in problem.daemons
    )


def _min_values(problem, pool, claim):
    types = {t.name: t for t in problem.catalogues[claim.pool].instance_types}
    for spec in pool.spec.template.spec.requirements:
        if not spec.min_values:
            continue
        values = set()
        for name in claim.instance_types:
            for requirement in types[name].requirements.values():
                if requirement.key == spec.key and not requirement.complement:
                    values |= set(requirement.values)
        if len(values) < spec.min_values:
            yield f"minValues {spec.min_values} of {spec.key} missed: {sorted(values)}"


# -- one pod on one node ---------------------------------------------------------------------------


def may_run(pod, labels, taints):
    if not tolerates_all(pod.shape, taints):
        hard = [(t.key, t.value, t.effect) for t in taints if t.effect in HARD_EFFECTS]
        yield f"{pod.name} does not tolerate {hard}"
    if not selects_node(pod.shape, labels):
        yield f"{pod.name} does not select {labels}"


def distinct(pods):
    """Keep one pod of each shape: the others ask for the same."""
    return {id(pod.shape): pod for pod in pods}.values()


def _volumes_mountable(problem, pods, labels):
    for pod in pods:
        volumes = problem.volumes.get(pod.uid)
        if volumes is None or not volumes.alternatives:
            continue
        if not any(
            all(meets(requirement, labels) for requirement in alternative.values())
            for alternative in volumes.alternatives
        ):
            alternatives = [str(alternative) for alternative in volumes.alternatives]
            yield f"volumes of {pod.name} are not to be had here, but under {alternatives}"


# -- what all claims share -------------------------------------------------------------------------


def limits(problem, plan, by_claim):
    """Check that no pool exceeds its limits, even if the largest variant of each claim launches.

    `by_claim` lists the variants of each claim. Nor may there be more of them than in all.
    """
    most = problem.max_new_nodes
    if most is not None and len(plan.claims) > most:
        yield f"{len(plan.claims)} claims exceed the {most} that there may be in all"
    for pool in problem.pools:
        limited = quantities(pool.spec.limits)
        used = pool_use(problem, plan, pool, by_claim)
        if limited and any(claim.pool == pool.name for claim in plan.claims):
            for name, limit in limited.items():
                if used.get(name, 0) > limit:
                    yield f"pool {pool.name}: {name} {used[name]} exceeds the limit {limit}"


def pool_use(problem, plan, pool, by_claim):
    """Add up what a pool has and what its claims may become at most, nodes included."""
    used = dict(problem.pool_usage.get(pool.name, {}))
    for number, claim in enumerate(plan.claims):
        if claim.pool == pool.name:
            capacities = [variant.capacity for variant in by_claim[number]]
            names = {name for capacity in capacities for name in capacity}
            largest = {name: max(c.get(name, 0) for c in capacities) for name in names}
            add(used, {**largest, "nodes": 1})
    return used


def reservations(problem, by_claim):
    """Check that all claims which can only be reserved find an instance of a reservation.

    `by_claim` lists the variants of each claim. A claim that may use one of several reservations is
    content with any that is left: a matching of claims to instances.
    """
    supply = reservation_supply(problem)
    wishes = {
        number: {reservation_of(variant.offering) for variant in listed}
        for number, listed in by_claim.items()
        if listed and all(m.labels.get(CAPACITY_TYPE) == "reserved" for m in listed)
    }
    holders = {name: [] for name in supply}
    for number, wished in wishes.items():
        if not _reserve(number, wishes, supply, holders, set()):
            yield f"claim {number}: nothing is left of reservations {sorted(wished)} for it"


def reservation_supply(problem):
    """Count the instances of each reservation: the least that any offering says of it."""
    supply = {}
    for catalogue in problem.catalogues.values():
        for instance_type in catalogue.instance_types:
            for offering in instance_type.offerings:
                if offering.capacity_type == "reserved":
                    name, count = reservation_of(offering), offering.reservation_capacity
                    supply[name] = min(supply.get(name, count), count)
    return supply


def _reserve(number, wishes, supply, holders, tried):
    for name in sorted(wishes[number] - tried):
        tried.add(name)
        if len(holders[name]) < supply[name]:
            holders[name].append(number)
            return True
        for other in list(holders[name]):
            if _reserve(other, wishes, supply, holders, tried):
                holders[name].remove(other)
                holders[name].append(number)
                return True
    return False


def reservation_of(offering):
    """Name a reservation: whatever reserved offerings say beyond zone and capacity type."""
    return tuple(
        sorted(
            f"{r.key}={value}"
            for r in offering.requirements.values()
            if r.key not in {CAPACITY_TYPE, "topology.kubernetes.io/zone"} and not r.complement
            for value in r.values
        )
    )
