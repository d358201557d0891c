"""Compares what a scenario expects with what a cluster shows.

Pure: every runner collects an `Observation` in its own way and asks here what is not yet true.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import NODE_POOL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from karpenter_core.testing.cluster import Object
    from karpenter_core.testing.scenarios import (
        CountBounds,
        Expectation,
        ExpectedCondition,
        ExpectedEvent,
    )

__all__ = ["CloudAccount", "Observation", "unmet_expectations"]

SHOWN: Final = 5
"""The number of examples that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudAccount:
    """The simulated cloud's own records, independent of the controller's state."""

    instances: Sequence[Object] = ()
    """Existing instances, with `providerID` and `nodeClaim`."""
    launches: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of instances launched for each token (a claim's UID)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The contents of a cluster and its simulated cloud at one moment, as plain JSON."""

    pods: Sequence[Object] = ()
    nodes: Sequence[Object] = ()
    node_claims: Sequence[Object] = ()
    claims_ever: int = 0
    """NodeClaims that existed at any time of the scenario."""
    events: Sequence[Object] = ()
    cloud: CloudAccount | None = None
    """None if the cloud was not read: then nothing is asserted about instances."""
    objects: Mapping[tuple[str, str], Object] = field(
        default_factory=dict[tuple[str, str], "Object"]
    )
    """Objects that carry conditions, by kind and name."""

    @property
    def pool_nodes(self) -> tuple[Object, ...]:
        """Nodes that belong to a NodePool."""
        return tuple(node for node in self.nodes if NODE_POOL in _labels(node))


def unmet_expectations(expected: Expectation, seen: Observation) -> tuple[str, ...]:
    """Return, in words, every part of an expectation that does not hold."""
    return tuple(_unmet(expected, seen))


def _unmet(expected: Expectation, seen: Observation) -> Iterator[str]:
    yield from _amounts(expected, seen)
    if expected.nothing_left:
        yield from _leftovers(seen)
    if expected.consistent:
        yield from _inconsistencies(seen)
    if expected.pools_used is not None:
        used = sorted({_labels(node)[NODE_POOL] for node in seen.pool_nodes})
        if used != sorted(expected.pools_used):
            yield f"NodePools with nodes: {used}, expected {sorted(expected.pools_used)}"
    yield from _marks(expected, seen)
    for event in expected.events:
        yield from _event(event, seen)
    for condition in expected.conditions:
        yield from _condition(condition, seen)


def _marks(expected: Expectation, seen: Observation) -> Iterator[str]:
    """Yield errors of taints and labels of nodes."""
    for key in expected.node_taints_absent:
        tainted = [_name(node) for node in seen.pool_nodes if key in _taint_keys(node)]
        if tainted:
            yield f"taint {key} is on {_examples(tainted)}"
    for key, value in expected.node_labels.items():
        others = [_name(node) for node in seen.pool_nodes if _labels(node).get(key) != value]
        if others:
            yield f"label {key} is not {value} on {_examples(others)}"


def _amounts(expected: Expectation, seen: Observation) -> Iterator[str]:
    nodes = seen.pool_nodes
    phases = Counter(_phase(pod) for pod in seen.pods)
    if expected.pods is not None:
        yield from _amount("running pods", expected.pods.running, phases["Running"])
        yield from _amount("pending pods", expected.pods.pending, phases["Pending"])
    yield from _amount("nodes", expected.nodes, len(nodes))
    yield from _amount("ready nodes", expected.ready_nodes, sum(map(_is_ready, nodes)))
    yield from _amount("NodeClaims", expected.node_claims, len(seen.node_claims))
    yield from _amount("NodeClaims ever", expected.launched, seen.claims_ever)
    if seen.cloud is not None:
        yield from _amount("instances", expected.instances, len(seen.cloud.instances))


def _amount(what: str, expected: CountBounds | None, number: int) -> Iterator[str]:
    if expected is not None and not expected.accepts(number):
        yield f"{what}: {number}, expected {expected}"


def _leftovers(seen: Observation) -> Iterator[str]:
    for what, objects in (
        ("pods", seen.pods),
        ("nodes", seen.pool_nodes),
        ("NodeClaims", seen.node_claims),
    ):
        if objects:
            held = [f"{_name(each)} {_finalizers(each)}" for each in objects]
            yield f"{len(objects)} {what} left: {_examples(held)}"
    if seen.cloud is not None and seen.cloud.instances:
        names = [instance["providerID"] for instance in seen.cloud.instances]
        yield f"{len(names)} instances left: {_examples(names)}"


def _inconsistencies(seen: Observation) -> Iterator[str]:
    """Yield breaches of the one-to-one relation of instances, claims and nodes."""
    if seen.cloud is None:
        return
    twins = [token for token, made in seen.cloud.launches.items() if made > 1]
    if twins:
        yield f"launched more than once for the same claim: {_examples(twins)}"
    instances = Counter(str(each["providerID"]) for each in seen.cloud.instances)
    claims = Counter(
        str(claim.get("status", {}).get("providerID", "")) for claim in seen.node_claims
    )
    nodes = Counter(str(node["spec"].get("providerID", "")) for node in seen.pool_nodes)
    for what, others in (("NodeClaim", claims), ("Node", nodes)):
        if instances != others:
            yield (
                f"instances without {what}: {_examples(sorted(instances - others))}; "
                f"{what}s without instance: {_examples(sorted(others - instances))}"
            )


def _event(expected: ExpectedEvent, seen: Observation) -> Iterator[str]:
    found = [
        event
        for event in seen.events
        if expected.reason in ("", event.get("reason"))
        and expected.kind in ("", _about(event).get("kind"))
        and all(text in _note(event) for text in expected.contains)
    ]
    if not expected.count.accepts(len(found)):
        same_reason = [_note(each) for each in seen.events if each.get("reason") == expected.reason]
        yield (
            f"{len(found)} events {expected.reason} on {expected.kind or 'anything'} with "
            f"{expected.contains}, expected {expected.count}; events of that reason say: "
            f"{_examples(sorted(set(same_reason)))}"
        )


def _condition(expected: ExpectedCondition, seen: Observation) -> Iterator[str]:
    where = f"{expected.kind} {expected.name}"
    value = seen.objects.get((expected.kind, expected.name))
    if value is None:
        yield f"{where} does not exist"
        return
    conditions = value.get("status", {}).get("conditions", [])
    found = next((each for each in conditions if each["type"] == expected.type), None)
    if found is None:
        yield f"{where} has no condition {expected.type}: {_examples(conditions)}"
    elif (
        found["status"] != expected.status
        or expected.reason not in ("", found.get("reason"))
        or not all(text in found.get("message", "") for text in expected.contains)
    ):
        yield f"{where}: {found}, expected {expected.model_dump(exclude_defaults=True)}"


def _phase(pod: Object) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    return str(pod.get("status", {}).get("phase", "Pending"))


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _labels(value: Object) -> dict[str, str]:
    return value["metadata"].get("labels") or {}


def _name(value: Object) -> str:
    return str(value["metadata"]["name"])


def _finalizers(value: Object) -> list[str]:
    return value["metadata"].get("finalizers") or []


def _taint_keys(node: Object) -> set[str]:
    taints: list[Object] = node["spec"].get("taints") or []
    return {taint["key"] for taint in taints}


def _about(event: Object) -> Object:
    """Return whom an event of either API group is about."""
    return event.get("involvedObject") or event.get("regarding") or {}


def _note(event: Object) -> str:
    return str(event.get("message") or event.get("note") or "")


def _examples(values: Sequence[object]) -> str:
    shown = ", ".join(str(value) for value in values[:SHOWN])
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return f"{shown}{more}" if values else "none"
