"""Writes the metric series of Nodes and pods when they are scraped.

A scrape runs in its own thread and uses the last snapshot that the event loop has passed on. The text of a
Node and of the pods on it is kept until one of them changes, about 300 bytes a pod; pods that wait or
have ended are written anew each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    OS,
    REGION,
    WINDOWS_BUILD,
    ZONE,
)
from karpenter_core.api.quantities import UNITS_PER_ONE
from karpenter_core.provider.kit.series_text import escape_label_value, labels_text
from karpenter_core.scheduling.resources import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from karpenter_core.api.records import PodShape, PodView
    from karpenter_core.controllers.metrics.process_metrics import Metrics
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["NodeSeries", "amount_of", "snake_case"]

PODS_PER_BATCH: Final = 256
_TRUTH: Final = {True: "true", False: "false"}
_PodLabels: TypeAlias = tuple[str, str, str]
"""Labels of pods on a node before `name`, between `namespace` and `owner`, and after `ready`."""


@dataclass(frozen=True, slots=True)
class _NodeText:
    """The series of one Node as text, and the labels that its pods share."""

    state_node: StateNode
    labels: str
    amounts: tuple[str, ...]
    """The lines of each gauge of amounts, in the order of `NodeSeries._amounts`."""
    created: datetime | None
    of_pods: _PodLabels


@dataclass(frozen=True, slots=True)
class _PodsText:
    """The lines of the pods on a Node, and what they were written from."""

    pods: tuple[PodView, ...]
    labels: _PodLabels
    lines: str


@final
class NodeSeries:
    """The gauges `karpenter_nodes_*` and `karpenter_pods_state`."""

    def __init__(self, metrics: Metrics, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock: Final = Lock()
        self._snapshot: Snapshot | None = None
        self._rendered: Snapshot | None = None
        self._texts: dict[str, _NodeText] = {}
        self._pod_texts: dict[str, _PodsText] = {}
        gauges = (
            metrics.nodes_allocatable,
            metrics.nodes_total_pod_requests,
            metrics.nodes_total_daemon_requests,
            metrics.nodes_total_pod_limits,
            metrics.nodes_total_daemon_limits,
            metrics.nodes_system_overhead,
        )
        self._names: Final = tuple(gauge.name for gauge in gauges)
        for index, gauge in enumerate(gauges):
            gauge.set_source(lambda _name, index=index: self._amounts(index))
        metrics.nodes_current_lifetime.set_source(self._lifetimes)
        metrics.pods.state.set_source(self._pods)

    def show(self, snapshot: Snapshot) -> None:
        """Use this snapshot for the next scrapes."""
        self._snapshot = snapshot

    def _current(self) -> tuple[Mapping[str, _NodeText], Snapshot | None]:
        """Return the texts of all Nodes by name, rendered anew for changed Nodes."""
        with self._lock:
            snapshot = self._snapshot
            if snapshot is not None and snapshot is not self._rendered:
                cached = self._texts
                self._texts = {
                    state_node.node.name: text
                    if (text := cached.get(state_node.node.name)) is not None
                    and text.state_node is state_node
                    else _node_text(state_node, self._names)
                    for state_node in snapshot.state_nodes
                    if state_node.node is not None
                }
                self._rendered = snapshot
            return self._texts, snapshot

    def _amounts(self, index: int) -> Iterator[str]:
        texts, _ = self._current()
        for text in texts.values():
            yield text.amounts[index]

    def _lifetimes(self, name: str) -> Iterator[str]:
        texts, _ = self._current()
        now = self._now()
        for text in texts.values():
            if text.created is not None:
                age = max((now - text.created).total_seconds(), 0.0)
                yield f"{name}{{{text.labels}}} {age!r}\n"

    def _pods(self, name: str) -> Iterator[str]:
        texts, snapshot = self._current()
        if snapshot is None:
            return
        write = _PodWriter(name)
        known, current = self._pod_texts, dict[str, _PodsText]()
        for node_name, pods in snapshot.pods_by_node.items():
            node = texts.get(node_name)
            labels = _unknown_node(node_name) if node is None else node.of_pods
            text = known.get(node_name)
            if text is None or text.pods is not pods or text.labels != labels:
                written = "".join(write.line(pod, labels) for pod in pods)
                text = _PodsText(pods, labels, written)
            current[node_name] = text
            yield text.lines
        self._pod_texts = current
        lines: list[str] = []
        for pod in snapshot.pods.values():
            if pod.node_name and not pod.is_terminal:  # is among those of its node
                continue
            node = texts.get(pod.node_name)
            lines.append(
                write.line(pod, _unknown_node(pod.node_name) if node is None else node.of_pods)
            )
            if len(lines) >= PODS_PER_BATCH:
                yield "".join(lines)
                lines.clear()
        yield "".join(lines)


@final
class _PodWriter:
    """Writes lines of `karpenter_pods_state`; works out owners once for each shape of pods."""

    __slots__ = ("_name", "_owners")

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._owners: Final[dict[int, tuple[str, str]]] = {}

    def line(self, pod: PodView, labels: _PodLabels) -> str:
        """Return the line of a pod; `labels` are those of its node."""
        shape = pod.shape
        of_shape = self._owners.get(id(shape))
        if of_shape is None:
            of_shape = self._owners[id(shape)] = (shape.namespace, _owner_prefix(shape))
        namespace, prefix = of_shape
        owner = f"{prefix}{escape_label_value(pod.owner_name)}" if pod.owner_name else ""
        first, middle, last = labels
        return (
            f'{self._name}{{{first},name="{pod.name}",namespace="{namespace}",{middle},'
            f'owner="{owner}",phase="{pod.phase}",ready="{_TRUTH[pod.ready is True]}",'
            f"{last}}} 1.0\n"
        )


def amount_of(resource: str, amount: int) -> float:
    """Return an amount in the unit of its metrics: cores, the currency, the others as they are."""
    return amount / UNITS_PER_ONE.get(resource, 1)


@lru_cache(maxsize=1024)
def snake_case(resource: str) -> str:
    """Return a resource as the label `resource_type` has it."""
    return resource.lower().replace("-", "_").replace("/", "_").replace(".", "_")


def _node_text(state_node: StateNode, names: tuple[str, ...]) -> _NodeText:
    node, labels = state_node.node, state_node.labels
    managed = str(state_node.managed).lower()
    before = {
        "arch": labels.get(ARCH, ""),
        "capacity_type": labels.get(CAPACITY_TYPE, ""),
        "instance_type": labels.get(INSTANCE_TYPE, ""),
        "managed": managed,
    }
    name = state_node.name if node is None else node.name
    nodepool, zone = labels.get(NODE_POOL, ""), labels.get(ZONE, "")
    head = labels_text(
        {
            **before,
            "node_name": name,
            "nodepool": nodepool,
            "os": labels.get(OS, ""),
            "phase": "Terminating" if node is not None and node.is_deleting else "",
            "region": labels.get(REGION, ""),
        }
    )
    tail = labels_text({"windows_build": labels.get(WINDOWS_BUILD, ""), "zone": zone})
    return _NodeText(
        state_node,
        f"{head},{tail}",
        tuple(
            "".join(
                f'{gauge}{{{head},resource_type="{snake_case(resource)}",{tail}}} '
                f"{amount_of(resource, amount)!r}\n"
                for resource, amount in amounts.items()
            )
            for gauge, amounts in zip(names, _amounts_of(state_node), strict=True)
        ),
        None if node is None else node.created,
        (
            labels_text(before),
            labels_text({"node": name, "nodepool": nodepool}),
            labels_text({"scheduled": "true", "zone": zone}),
        ),
    )


def _amounts_of(state_node: StateNode) -> tuple[Mapping[str, int], ...]:
    """Return what each gauge of amounts shows of a Node, in the order of the gauges."""
    overhead = {
        name: state_node.capacity.get(name, 0) - amount
        for name, amount in state_node.allocatable.items()
    }
    return (
        state_node.allocatable,
        state_node.requests,
        state_node.daemon_requests,
        merge(pod.shape.limits for pod in state_node.pods),
        merge(pod.shape.limits for pod in state_node.pods if pod.is_daemon),
        overhead,
    )


@lru_cache(maxsize=1024)
def _unknown_node(name: str) -> tuple[str, str, str]:
    """Return the labels of pods without a Node (no name) or with an unknown Node."""
    unknown = dict.fromkeys(("arch", "capacity_type", "instance_type"), "")
    return (
        labels_text({**unknown, "managed": "false"}),
        labels_text({"node": name, "nodepool": ""}),
        labels_text({"scheduled": str(bool(name)).lower(), "zone": ""}),
    )


def _owner_prefix(shape: PodShape) -> str:
    """Return the path of the owner of pods of a shape, up to the owner's name."""
    api_version, kind = shape.owner_api_version, shape.owner_kind.lower()
    return escape_label_value(f"/apis/{api_version}/namespaces/{shape.namespace}/{kind}s/")
