"""An independent judge of scheduling plans.

Shares no code with `karpenter_core.scheduling`: plain dictionaries and loops, written from
Kubernetes' rules. It looks at every machine a planned claim may become (every listed type with
every offering that the claim allows) as a node with labels, and asks whether each pod may run
there; it adds up requests, daemons, ports and limits.
"""

from __future__ import annotations

from itertools import product

HARD_EFFECTS = {"NoSchedule", "NoExecute"}
ZONE = "topology.kubernetes.io/zone"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
SIMULATED = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}


def violations(problem, plan, *, strict_min_values=True):
    """Return everything that is wrong with a plan, as texts; empty when it is valid."""
    found = list(_bookkeeping(problem, plan))
    nodes = {node.name: node for node in problem.nodes}
    for name, pods in plan.existing.items():
        found += _existing(problem, nodes[name], pods)
    for number, claim in enumerate(plan.claims):
        for text in _claim(problem, claim, strict_min_values=strict_min_values):
            found.append(f"claim {number} ({claim.pool}): {text}")
    found += _limits(problem, plan)
    return found


# -- bookkeeping -----------------------------------------------------------------------------------


def _bookkeeping(problem, plan):
    placed = [pod.uid for claim in plan.claims for pod in claim.pods]
    placed += [pod.uid for pods in plan.existing.values() for pod in pods]
    placed += plan.unschedulable
    if sorted(placed) != sorted(pod.uid for pod in problem.pods):
        yield f"pods are not each in one place: {sorted(placed)}"
    if not all(claim.pods for claim in plan.claims):
        yield "a claim without pods"
    total = sum(claim.cheapest.price_per_hour for claim in plan.claims)
    if abs(total - plan.cost.hourly) > 1e-6:
        yield f"cost {plan.cost.hourly} is not the sum {total}"


# -- existing nodes --------------------------------------------------------------------------------


def _existing(problem, node, pods):
    labels = {"kubernetes.io/hostname": node.name, **node.labels}
    for pod in pods:
        yield from (f"node {node.name}: {text}" for text in _may_run(pod, labels, node.taints))
    used = dict.fromkeys(node.available, 0)
    for pod in pods:
        _add(used, _requests(pod.shape))
    yield from (f"node {node.name}: {text}" for text in _over(used, node.available))
    ports = list(node.host_ports)
    for bound in node.pods:
        ports += bound.shape.host_ports
    yield from (f"node {node.name}: {text}" for text in _port_conflicts(ports, pods))


# -- planned claims --------------------------------------------------------------------------------


def _claim(problem, claim, *, strict_min_values):
    pool = next(p for p in problem.pools if p.name == claim.pool)
    types = {t.name: t for t in problem.catalogues[claim.pool].instance_types}
    taints = pool.spec.template.spec.taints
    wanted = {r.key: r for r in claim.requirements}
    prices = []
    for name in claim.instance_types:
        machines = list(_machines(types[name], claim, wanted))
        if not machines:
            yield f"{name} cannot be bought under the claim's requirements"
            continue
        prices.append(min(price for _, price in machines))
        for labels, _ in machines:
            for pod in claim.pods:
                yield from (f"{name}: {text}" for text in _may_run(pod, labels, taints))
            yield from (
                f"{name}: {text}" for text in _contents(problem, claim, types[name], labels, taints)
            )
    if prices != sorted(prices):
        yield "types are not sorted by price"
    if prices and abs(prices[0] - claim.cheapest.price_per_hour) > 1e-9:
        yield f"cheapest is {claim.cheapest.price_per_hour}, should be {prices[0]}"
    if claim.cheapest.instance_type != claim.instance_types[0]:
        yield "the cheapest type is not the first"
    if set(wanted[INSTANCE_TYPE].values) != set(claim.instance_types):
        yield "requirement and list of instance types differ"
    if strict_min_values:
        yield from _min_values(pool, claim, types)


def _machines(instance_type, claim, wanted):
    """Yield the nodes a type may become under a claim: labels, and the price."""
    known = {r.key: r for r in instance_type.requirements.values()}
    for offering in instance_type.offerings:
        zone, kind = offering.zone, offering.capacity_type
        if not offering.available:
            continue
        if not (_allows(wanted.get(ZONE), zone) and _allows(wanted.get(CAPACITY_TYPE), kind)):
            continue
        fixed = {**claim.labels, **SIMULATED, ZONE: zone, CAPACITY_TYPE: kind}
        choices = {
            key: [v for v in sorted(r.values) if _allows(wanted.get(key), v)]
            for key, r in known.items()
            if not r.complement and r.values and key not in fixed
        }
        for values in product(*choices.values()):
            yield {**fixed, **dict(zip(choices, values, strict=True))}, offering.price.amount


def _contents(problem, claim, instance_type, labels, taints):
    room = dict(instance_type.capacity)
    for name, amount in instance_type.overhead.total().items():
        room[name] = room.get(name, 0) - amount
    used = {}
    ports = []
    for daemon in problem.daemons:
        if _tolerates_all(daemon.shape, taints) and _selects(daemon.shape, labels):
            _add(used, _requests(daemon.shape))
            ports += daemon.shape.host_ports
    for pod in claim.pods:
        _add(used, _requests(pod.shape))
    yield from _over(used, room)
    yield from _port_conflicts(ports, claim.pods)


def _min_values(pool, claim, types):
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


def _limits(problem, plan):
    for pool in problem.pools:
        limits = _parsed(pool.spec.limits)
        if not limits:
            continue
        types = {t.name: t for t in problem.catalogues[pool.name].instance_types}
        used = dict(problem.pool_usage.get(pool.name, {}))
        claims = [claim for claim in plan.claims if claim.pool == pool.name]
        for claim in claims:
            largest = {
                name: max(types[t].capacity.get(name, 0) for t in claim.instance_types)
                for name in limits
                if name != "nodes"
            }
            _add(used, {**largest, "nodes": 1})
        if not claims:
            continue
        for name, limit in limits.items():
            if used.get(name, 0) > limit:
                yield f"pool {pool.name}: {name} {used[name]} exceeds the limit {limit}"


# -- rules of Kubernetes -------------------------------------------------------------------------


def _may_run(pod, labels, taints):
    if not _tolerates_all(pod.shape, taints):
        yield f"{pod.name} does not tolerate {[(t.key, t.value, t.effect) for t in taints]}"
    if not _selects(pod.shape, labels):
        yield f"{pod.name} does not select {labels}"


def _tolerates_all(shape, taints):
    return all(
        any(_tolerates(toleration, taint) for toleration in shape.tolerations)
        for taint in taints
        if taint.effect in HARD_EFFECTS
    )


def _tolerates(toleration, taint):
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def _selects(shape, labels):
    if any(labels.get(key) != value for key, value in shape.node_selector.items()):
        return False
    terms = shape.required_node_terms
    return not terms or any(
        all(_matches(expression, labels) for expression in term.match_expressions) for term in terms
    )


def _matches(expression, labels):
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(expression.values[0])
        case "Lt":
            return value is not None and int(value) < int(expression.values[0])
    raise AssertionError(expression.operator)


def _allows(requirement, value):
    if requirement is None:
        return True
    if (value in requirement.values) == requirement.complement:
        return False
    if requirement.gte is not None and int(value) < requirement.gte:
        return False
    return requirement.lte is None or int(value) <= requirement.lte


def _requests(shape):
    return {"pods": 1, **shape.requests}


def _add(total, amounts):
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _over(used, room):
    for name, amount in used.items():
        if amount > room.get(name, 0):
            yield f"{name}: {amount} on {room.get(name, 0)}"


def _port_conflicts(taken, pods):
    taken = list(taken)
    for pod in pods:
        for port in pod.shape.host_ports:
            if any(port.port == other.port and port.protocol == other.protocol for other in taken):
                yield f"{pod.name}: port {port.port} is taken"
        taken += pod.shape.host_ports


def _parsed(limits):
    units = {"Gi": 2**30, "Mi": 2**20}
    parsed = {}
    for name, quantity in limits.items():
        text = str(quantity)
        number = int(text[:-2]) * units[text[-2:]] if text[-2:] in units else int(text)
        parsed[name] = number * 1000 if name == "cpu" else number
    return parsed


# -- the other direction: could a pod have been placed alone? --------------------------------------


def hosts_alone(problem, pod):
    """Return a machine that could be launched for this pod alone; None when there is none.

    Only for problems without limits and minValues.
    """
    for pool in problem.pools:
        specs = pool.spec.template.spec
        fixed = {
            "karpenter.sh/nodepool": pool.name,
            f"{specs.node_class_ref.group}/{specs.node_class_ref.kind.lower()}":
                specs.node_class_ref.name,
            **pool.spec.template.metadata.labels,
            **SIMULATED,
        }  # fmt: skip
        custom = [
            [(spec.key, value) for value in spec.values]
            for spec in specs.requirements
            if spec.key.startswith("example.com/") and spec.key not in fixed
        ]
        for instance_type in problem.catalogues[pool.name].instance_types:
            for choice in product(*custom):
                labels = {**fixed, **dict(choice)}
                for candidate, _ in _machines(instance_type, _Labelled(labels), {}):
                    if (
                        _pool_allows(specs, candidate)
                        and not list(_may_run(pod, candidate, specs.taints))
                        and not list(
                            _contents(problem, _Alone(pod), instance_type, candidate, specs.taints)
                        )
                    ):
                        return pool.name, instance_type.name, candidate
    return None


def _pool_allows(specs, labels):
    return all(
        labels.get(spec.key) in spec.values for spec in specs.requirements if spec.operator == "In"
    )


class _Labelled:
    def __init__(self, labels):
        self.labels = labels


class _Alone:
    def __init__(self, pod):
        self.pods = (pod,)
