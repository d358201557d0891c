"""Rules of Kubernetes, one pod and one node (or two pods) at a time.

Nodes are dictionaries of labels and lists of taints, everything else is read from the records.
"""

from __future__ import annotations

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
HARD_EFFECTS = {"NoSchedule", "NoExecute"}
DEPRECATED = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
}
ANY_ADDRESS = {"", "0.0.0.0", "::"}


# -- taints ----------------------------------------------------------------------------------------


def tolerates_all(shape, taints, effects=HARD_EFFECTS):
    return all(
        any(tolerates(toleration, taint) for toleration in shape.tolerations)
        for taint in taints
        if taint.effect in effects
    )


def tolerates(toleration, taint):
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case "Gt" | "Lt":
            bound, value = number(toleration.value), number(taint.value)
            if bound is None or value is None:
                return False
            return value > bound if toleration.operator == "Gt" else value < bound
    return False


# -- node selectors --------------------------------------------------------------------------------


def selects_node(shape, labels):
    """Node selector and required node affinity: any term, and a term without expressions never."""
    if not all(label_of(labels, key) == value for key, value in shape.node_selector.items()):
        return False
    terms = shape.required_node_terms
    return not terms or any(term_matches(term, labels) for term in terms)


def term_matches(term, labels):
    return bool(term.match_expressions) and all(
        holds(e.operator, e.values, label_of(labels, e.key)) for e in term.match_expressions
    )


def asked_labels(shape):
    """Collect the labels that node selector and required node affinity speak of."""
    terms = shape.required_node_terms
    return {*shape.node_selector, *(e.key for term in terms for e in term.match_expressions)}


def label_of(labels, key):
    return labels.get(key, labels.get(DEPRECATED.get(key, key)))


def holds(operator, values, value):
    """Whether a label with this value (None: no such label) meets an expression."""
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" | "Gte" | "Lte":
            mine, bound = number(value), number(values[0])
            if mine is None or bound is None:
                return False
            return {
                "Gt": mine > bound,
                "Lt": mine < bound,
                "Gte": mine >= bound,
                "Lte": mine <= bound,
            }[operator]
    raise AssertionError(operator)


def allows(requirement, value):
    """Whether a requirement (None: anything goes) lets a label have this value."""
    if requirement is None:
        return True
    if (value in requirement.values) == requirement.complement:
        return False
    if requirement.gte is None and requirement.lte is None:
        return True
    mine = number(value)
    if mine is None or (requirement.gte is not None and mine < requirement.gte):
        return False
    return requirement.lte is None or mine <= requirement.lte


def meets(requirement, labels):
    """Whether a node meets a requirement; a label that is not there meets negative ones only."""
    value = label_of(labels, requirement.key)
    if value is not None:
        return allows(requirement, value)
    unbounded = requirement.gte is None and requirement.lte is None
    return unbounded and bool(requirement.values) == requirement.complement


def number(text):
    digits = text[1:] if text and text[0] in "+-" else text
    return int(text) if digits and digits.isascii() and digits.isdigit() else None


# -- pods that depend on pods ----------------------------------------------------------------------


def selects_pod(selector, labels):
    """No selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        holds(e.operator, e.values, labels.get(e.key)) for e in selector.match_expressions
    )


def term_selects(term, owner, pod, namespaces):
    """Whether a pod (anti-)affinity term of `owner` speaks of a pod.

    `matchLabelKeys` and `mismatchLabelKeys` are in the selector already: the API server puts them
    there when the pod is created.
    """
    return _covers(term, owner, pod.namespace, namespaces) and selects_pod(
        term.selector, pod.labels
    )


def _covers(term, owner, namespace, namespaces):
    if term.namespace_selector is None:
        return namespace in (term.namespaces or (owner.namespace,))
    if namespace in term.namespaces:
        return True
    selector = term.namespace_selector
    if not selector.match_labels and not selector.match_expressions:
        return True
    return namespace in namespaces and selects_pod(selector, namespaces[namespace])


def spread_selects(spread, owner, pod):
    """Whether a spread constraint of `owner` counts a pod: same namespace, selector, own labels."""
    if pod.namespace != owner.namespace or not selects_pod(spread.selector, pod.labels):
        return False
    return all(
        pod.labels.get(key) == owner.labels[key]
        for key in spread.match_label_keys
        if key in owner.labels
    )


def hard_spreads(shape):
    return [s for s in shape.topology_spread if s.when_unsatisfiable == "DoNotSchedule"]


# -- resources and ports ---------------------------------------------------------------------------


def requests(shape):
    return {"pods": 1, **shape.requests}


def add(total, amounts):
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def over(used, room):
    for name, amount in used.items():
        if amount > room.get(name, 0):
            yield f"{name}: {amount} on {room.get(name, 0)}"


def ports_conflict(first, second):
    return (
        first.port == second.port
        and first.protocol == second.protocol
        and (first.ip == second.ip or first.ip in ANY_ADDRESS or second.ip in ANY_ADDRESS)
    )


def port_conflicts(taken, pods):
    taken = list(taken)
    for pod in pods:
        for port in pod.shape.host_ports:
            if any(ports_conflict(port, other) for other in taken):
                yield f"{pod.name}: port {port.port} is taken"
        taken += pod.shape.host_ports


def quantities(limits):
    """Read the amounts of limits: cpu in milli-cores, the rest in base units."""
    units = {"Gi": 2**30, "Mi": 2**20}
    parsed = {}
    for name, quantity in limits.items():
        text = str(quantity)
        if text.endswith("m"):
            parsed[name] = int(text[:-1])
            continue
        amount = int(text[:-2]) * units[text[-2:]] if text[-2:] in units else int(text)
        parsed[name] = amount * 1000 if name == "cpu" else amount
    return parsed
