"""The scheduler's filters for one pod and one node, over plain JSON objects.

Written from Kubernetes' documentation of each constraint, and deliberately without code of
`karpenter_core.scheduling`, so that the embedded scheduler checks the plans of that package.
Reasons have kube-scheduler's wording.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.quantities import parse_amount
from karpenter_core.sim.fields import Json, entries, labels_of, section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "HostPort",
    "affinity_refusal",
    "amounts_of",
    "host_ports",
    "port_refusal",
    "requests_of",
    "resource_refusal",
    "static_refusal",
    "taint_refusal",
]

HostPort = tuple[str, str, int]
"""Address, protocol and port."""

_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, never bound
_UNSCHEDULABLE: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def amounts_of(resources: Mapping[str, object]) -> dict[str, int]:
    """Read a ResourceList: milli-cores for cpu, base units for the rest."""
    return {name: parse_amount(name, str(text)) for name, text in resources.items()}


def requests_of(pod: Json) -> dict[str, int]:
    """Return the resources that a pod needs of a node, `pods: 1` included.

    Sidecars run beside the containers and beside the init containers that follow them; init
    containers run one at a time; a pod-level request stands for the sum (KEP-753, KEP-2837).
    """
    spec = pod["spec"]
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in entries(spec, "initContainers"):
        requests = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, requests)
            requests = sidecars
        else:
            requests = _sum(sidecars, requests)
        peak = {name: max(peak.get(name, 0), requests.get(name, 0)) for name in peak | requests}
    running = sidecars
    for container in entries(spec, "containers"):
        running = _sum(running, _requests(container))
    total = {name: max(peak.get(name, 0), running.get(name, 0)) for name in peak | running}
    total |= _requests(spec)
    total = _sum(total, amounts_of(section(spec, "overhead")))
    return {**{name: amount for name, amount in total.items() if amount}, "pods": 1}


def _requests(holder: Json) -> dict[str, int]:
    return amounts_of(section(section(holder, "resources"), "requests"))


def _sum(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in left | right}


def resource_refusal(
    requests: Mapping[str, int], allocatable: Mapping[str, int], requested: Mapping[str, int]
) -> str | None:
    """Return the message about a resource that is short on a node, if any."""
    for name, amount in requests.items():
        if amount > allocatable.get(name, 0) - requested.get(name, 0):
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
    return None


def static_refusal(pod: Json, node: Json) -> str | None:
    """Return the reason why a node never fits a pod, whatever else runs there."""
    return taint_refusal(pod, node) or affinity_refusal(pod, node)


def taint_refusal(pod: Json, node: Json) -> str | None:
    """Return the message about a taint of the node that the pod does not tolerate, if any."""
    tolerations = entries(pod["spec"], "tolerations")
    if node["spec"].get("unschedulable") and not _tolerated(_UNSCHEDULABLE, tolerations):
        return "node(s) were unschedulable"
    for taint in entries(node["spec"], "taints"):
        if taint["effect"] != "PreferNoSchedule" and not _tolerated(taint, tolerations):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    return None


def _tolerated(taint: Json, tolerations: Iterable[Json]) -> bool:
    for each in tolerations:
        if each.get("effect") and each["effect"] != taint["effect"]:
            continue
        if each.get("key") and each["key"] != taint["key"]:
            continue
        operator = each.get("operator") or "Equal"
        if operator == "Exists":
            return True
        if each.get("key") and each.get("value", "") == taint.get("value", ""):
            return True
    return False


def affinity_refusal(pod: Json, node: Json) -> str | None:
    """Return the message that the pod does not select the node."""
    labels = labels_of(node)
    selector = section(pod["spec"], "nodeSelector")
    affinity = section(section(pod["spec"], "affinity"), "nodeAffinity")
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    fits = all(labels.get(key) == value for key, value in selector.items())
    if fits and required is not None:
        name = {"metadata.name": node["metadata"]["name"]}
        fits = any(
            _term_matches(term, labels, name) for term in entries(required, "nodeSelectorTerms")
        )
    return None if fits else "node(s) didn't match Pod's node affinity/selector"


def _term_matches(term: Json, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    expressions, matching = entries(term, "matchExpressions"), entries(term, "matchFields")
    if not expressions and not matching:
        return False
    return all(_holds(each, labels) for each in expressions) and all(
        _holds(each, fields) for each in matching
    )


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    values: list[str] = expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                left, right = int(value or ""), int(values[0])
            except ValueError:
                return False
            return left > right if operator == "Gt" else left < right
        case _:
            return False


def host_ports(pod: Json) -> list[HostPort]:
    """Return the host ports of a pod."""
    containers = [*entries(pod["spec"], "containers")]
    containers += [
        each
        for each in entries(pod["spec"], "initContainers")
        if each.get("restartPolicy") == "Always"
    ]
    return [
        (port.get("hostIP") or "", port.get("protocol") or "TCP", port["hostPort"])
        for container in containers
        for port in entries(container, "ports")
        if port.get("hostPort")
    ]


def port_refusal(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> str | None:
    """Return the message that a host port of the pod is in use on the node."""
    used = list(taken)
    for address, protocol, port in wanted:
        for other, other_protocol, other_port in used:
            same_port = (protocol, port) == (other_protocol, other_port)
            if same_port and (address == other or {address, other} & _ANY_ADDRESS):
                return "node(s) didn't have free ports for the requested pod ports"
    return None
