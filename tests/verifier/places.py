"""Places of pods: existing nodes, and planned claims as every node they may become.

A launch variant is one way in which a claim can be launched: a listed type, one of its offerings that the
claim allows, and a value for each label that the type leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

from tests.verifier.rules import DEPRECATED, HOSTNAME, allows, holds

SIMULATED = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}
_MOST_OPTIONS = 4096


@dataclass(eq=False)
class LaunchVariant:
    """One node that a claim may become."""

    labels: dict
    offering: object
    instance_type: object

    @property
    def price(self):
        return self.offering.price.amount

    @property
    def capacity(self):
        return {**self.instance_type.capacity, **(self.offering.capacity_override or {})}

    @property
    def room(self):
        """Return the resources for daemons and pods, without system reservations and huge pages."""
        overhead = {
            **self.instance_type.overhead.total(),
            **(self.offering.overhead_override or {}),
        }
        capacity = self.capacity
        room = {name: amount - overhead.get(name, 0) for name, amount in capacity.items()}
        huge = sum(amount for name, amount in capacity.items() if name.startswith("hugepages-"))
        if huge:
            room["memory"] = max(room.get("memory", 0) - huge, 0)
        return room


def type_variants(instance_type, labels, required):
    """List the nodes a type may become under labels and requirements (by key) of a claim."""
    known = {r.key: r for r in instance_type.requirements.values()}
    results = []
    for offering in instance_type.offerings:
        if not offering.available:
            continue
        sold = {r.key: r for r in offering.requirements.values()}
        if not all(_offering_allowed(r, required.get(key)) for key, r in sold.items()):
            continue
        fixed = {**labels, **SIMULATED}
        fixed |= {key: min(r.values) for key, r in sold.items() if r.values and not r.complement}
        choices = {
            key: [v for v in sorted(r.values) if allows(required.get(key), v)]
            for key, r in known.items()
            if not r.complement and r.values and key not in fixed and key not in sold
        }
        results += [
            LaunchVariant(
                {**fixed, **dict(zip(choices, values, strict=True))}, offering, instance_type
            )
            for values in product(*choices.values())
        ]
    return results


def _offering_allowed(sold, required):
    """An offering is one variant, so what it says of a label is a single value or none at all."""
    if required is None:
        return True
    if sold.complement or not sold.values:
        return required.complement == bool(required.values)
    return all(allows(required, value) for value in sold.values)


@dataclass(eq=False)
class Place:
    """A node, or what will be one: its possible labels, and the pods on it so far."""

    name: str
    options: list
    """The labels it may have: one dictionary, or one for each variant."""
    taints: tuple
    pods: list = field(default_factory=list)
    planned: bool = False
    ordered: bool = False
    """A launching node, of which not everything is decided."""
    closed: bool = False

    def __post_init__(self):
        self._domains = {}

    def each(self):
        """Yield a place for each thing that this one may be."""
        for labels in self.options:
            yield Place(name=self.name, options=[labels], taints=self.taints)

    def domains(self, key):
        """Return the values that a label may take here; None is among them when it may lack."""
        known = self._domains.get(key)
        if known is None:
            known = self._domains[key] = frozenset(labels.get(key) for labels in self.options)
        return known


def existing_place(node, gone):
    """Make a place of an existing node; `gone` are the UIDs that are being placed anew."""
    return Place(
        name=f"node {node.name}",
        options=node_options(node),
        taints=node.taints,
        pods=[
            pod
            for pod in node.pods
            if pod.uid not in gone
            and pod.phase not in {"Succeeded", "Failed"}
            and pod.deletion_timestamp is None
        ],
        ordered=node.requirements is not None,
        closed=node.closed,
    )


def node_options(node):
    """List the labels an existing node may have: one way, unless it is a claim still open."""
    labels = {HOSTNAME: node.name, **node.labels}
    if node.requirements is None:
        return [labels]
    finite = {
        r.key: [v for v in sorted(r.values) if allows(r, v)]
        for r in node.requirements.values()
        if not r.complement and r.values
    }
    options = [labels]
    for key, values in sorted(finite.items(), key=lambda item: len(item[1])):
        if len(options) * len(values) > _MOST_OPTIONS:
            raise AssertionError(f"{node.name} may be too many things")
        options = [{**option, key: value} for option in options for value in values]
    return options


def claim_place(number, claim, listed, taints):
    """Make a place of a planned claim; `listed` are its variants."""
    name = f"claim {number} ({claim.pool})"
    return Place(
        name=name,
        options=[{**variant.labels, HOSTNAME: name} for variant in listed],
        taints=taints,
        planned=True,
    )


def pool_labels(pool):
    """Labels that every node of a pool gets."""
    spec = pool.spec.template.spec
    reference = spec.node_class_ref
    return {
        "karpenter.sh/nodepool": pool.name,
        f"{reference.group}/{reference.kind.lower()}": reference.name,
        **pool.spec.template.metadata.labels,
    }


def universe(problem):
    """Return `key -> {value -> [taints]}`: the domains that pools can make, and behind what."""
    result = {}
    for pool in problem.pools:
        if pool.name not in problem.catalogues:
            continue
        catalogue = problem.catalogues[pool.name]
        values = _imaginable(pool, catalogue)
        offered = _offerings_by_label(catalogue)
        for key, of_key in values.items():
            for value in sorted(of_key):
                if pool_allows(pool, key, value) and _is_sold(pool, offered.get((key, value))):
                    behind = result.setdefault(key, {}).setdefault(value, [])
                    behind.append(pool.spec.template.spec.taints)
    return result


def _offerings_by_label(catalogue):
    """Return the offerings that have a label, by label and value: a catalogue has thousands."""
    result = {}
    for instance_type in catalogue.instance_types:
        for sold in instance_type.offerings:
            for requirement in sold.requirements.values():
                for value in requirement.values:
                    result.setdefault((requirement.key, value), []).append(sold)
    return result


def _is_sold(pool, with_value):
    """Whether a pool allows an offering with a label, if any offering has it."""
    return not with_value or any(_pool_buys(pool, sold) for sold in with_value)


def _pool_buys(pool, sold):
    fixed = pool_labels(pool)
    for requirement in sold.requirements.values():
        values = sorted(requirement.values) or [None]
        if requirement.complement:
            continue
        if not any(
            pool_allows(pool, requirement.key, value) and fixed.get(requirement.key, value) == value
            for value in values
        ):
            return False
    return True


def _imaginable(pool, catalogue):
    """Collect the label values that a pool's types have, and for other labels those it lists."""
    values = {}
    for instance_type in catalogue.instance_types:
        for requirement in instance_type.requirements.values():
            known = values.setdefault(requirement.key, set())
            if not requirement.complement:
                known |= requirement.values
    for requirement in pool.spec.template.spec.requirements:
        key = DEPRECATED.get(requirement.key, requirement.key)
        if requirement.operator == "In" and key not in values:
            values[key] = set(requirement.values)
    return values | {key: {value} for key, value in pool_labels(pool).items()}


def pool_allows(pool, key, value):
    """Whether a pool's requirements let a label (None: absent) have this value."""
    return all(
        holds(requirement.operator, requirement.values, value)
        for requirement in pool.spec.template.spec.requirements
        if DEPRECATED.get(requirement.key, requirement.key) == key
    )
