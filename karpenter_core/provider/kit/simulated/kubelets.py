"""Simulated kubelets: register a Node at once, late, never, or not Ready."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, final

from karpenter_core.api.quantities import format_resources, parse_resources
from karpenter_core.provider.kit.simulated.instances import SimulatedInstance, SimulatedInstances
from karpenter_core.provider.kit.simulated.pools import InstancePool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.provider.kit.simulated.behaviour import CloudBehaviour

__all__ = [
    "BootError",
    "BootedNode",
    "KubeletFault",
    "KubeletFaultKind",
    "NodeTaint",
    "SimulatedKubelets",
    "allocatable_amounts",
    "read_taints",
]

_NOT_READY: Final = {
    "type": "Ready",
    "status": "False",
    "reason": "KubeletNotReady",
    "message": "simulated",
}


_EFFECTS: Final = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})


class BootError(Exception):
    """The instance runs, and no kubelet registers a Node; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTaint:
    """A taint that the kubelet registers with."""

    key: str
    value: str = ""
    effect: str


def read_taints(text: str) -> tuple[NodeTaint, ...]:
    """Return the taints of the flag `--register-with-taints`: `key=value:Effect,...`.

    Raises:
        BootError: the kubelet cannot read one.
    """
    taints: list[NodeTaint] = []
    for each in filter(None, text.split(",")):
        left, _, effect = each.rpartition(":")
        key, _, value = left.partition("=")
        if not key or effect not in _EFFECTS:
            raise BootError(f"the kubelet cannot read the taint {each!r}")
        taints.append(NodeTaint(key=key, value=value, effect=effect))
    return tuple(taints)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootedNode:
    """Contents of the Node that a kubelet registers."""

    name: str
    provider_id: str
    labels: Mapping[str, str]
    taints: Sequence[NodeTaint] = ()
    capacity: Mapping[str, int]
    """By resource: milli-cores, bytes, counts."""
    allocatable: Mapping[str, int]
    addresses: Sequence[tuple[str, str]] = ()
    """Types (`InternalIP`) and addresses."""
    node_info: Mapping[str, str] = field(default_factory=dict[str, str])
    conditions: Sequence[Mapping[str, object]] = ()

    def manifest(self) -> Mapping[str, object]:
        """Return the Node as an object of Kubernetes."""
        status: dict[str, object] = {
            "capacity": _written(self.capacity),
            "allocatable": _written(self.allocatable),
            "addresses": [{"type": kind, "address": address} for kind, address in self.addresses],
            "nodeInfo": dict(self.node_info),
        }
        if self.conditions:
            status["conditions"] = list(self.conditions)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": dict(self.labels)},
            "spec": {
                "providerID": self.provider_id,
                "taints": [
                    {"key": taint.key, "effect": taint.effect}
                    | ({"value": taint.value} if taint.value else {})
                    for taint in self.taints
                ],
            },
            "status": status,
        }


class KubeletFaultKind(StrEnum):
    """The effect of a fault on the kubelets of matching instances."""

    NEVER_JOINS = "never-joins"
    NEVER_READY = "never-ready"
    """The Node is registered, and never Ready."""
    SLOW = "slow"
    """The Node is registered `KubeletFault.seconds` later."""


@final
@dataclass(slots=True, kw_only=True, eq=False)
class KubeletFault:
    """One fault; as a context manager, it lasts as long as the context."""

    kind: KubeletFaultKind
    pool: InstancePool
    seconds: float
    faults: list[KubeletFault] = field(repr=False)

    def end(self) -> None:
        """Remove the fault."""
        if self in self.faults:
            self.faults.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


Item = TypeVar("Item", bound=SimulatedInstance)


class SimulatedKubelets(ABC, Generic[Item]):
    """Boots instances; a cloud derives from it and supplies `boot`."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        behaviour: CloudBehaviour,
        instances: SimulatedInstances[Item],
    ) -> None:
        self._clock: Final = clock
        self._behaviour: Final = behaviour
        self._instances: Final = instances
        self._faults: Final[list[KubeletFault]] = []
        self.failing: Callable[[Item], bool] = lambda _: False
        """Instances that do not boot."""

    @abstractmethod
    def boot(self, instance: Item) -> BootedNode:
        """Return what the kubelet of a running instance registers.

        Raises:
            BootError: no kubelet starts.
        """

    def fault(
        self, kind: KubeletFaultKind, pool: InstancePool | None = None, *, seconds: float = 0
    ) -> KubeletFault:
        """Add a fault of the kubelets of matching instances, of all by default."""
        fault = KubeletFault(
            kind=kind, pool=pool or InstancePool(), seconds=seconds, faults=self._faults
        )
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        self._faults.clear()
        self.failing = lambda _: False

    def boot_failure(self, instance: Item) -> str:
        """Return why an instance has no Node now; empty if it has one."""
        try:
            self._booted(instance)
        except BootError as error:
            return str(error)
        return ""

    def node(self, instance: Item) -> Mapping[str, object] | None:
        """Return the Node that the instance registers; None if it has none now."""
        try:
            return self._booted(instance).manifest()
        except BootError:
            return None

    def _booted(self, instance: Item) -> BootedNode:
        if not self._instances.is_running(instance):
            raise BootError(f"the instance is {self._instances.state_of(instance)}")
        faults = [each for each in self._faults if each.pool.holds(instance.pool)]
        seconds = self._behaviour.boot_seconds + sum(each.seconds for each in faults)
        if self._clock() < self._instances.running_since(instance) + timedelta(seconds=seconds):
            raise BootError("the instance is booting")
        kinds = {each.kind for each in faults}
        if self.failing(instance) or KubeletFaultKind.NEVER_JOINS in kinds:
            raise BootError("the instance does not boot")
        booted = self.boot(instance)
        if KubeletFaultKind.NEVER_READY in kinds:
            return replace(booted, conditions=(*booted.conditions, _NOT_READY))
        return booted


def allocatable_amounts(
    capacity: Mapping[str, int],
    *reserved: Mapping[str, int],
    thresholds: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Return what a kubelet leaves for pods.

    `reserved` are amounts by resource. `thresholds` are those of hard eviction by resource, as
    quantities or as shares of the capacity (`10%`); a share of 100% or more is none.
    """
    left = dict(capacity)
    for amounts in reserved:
        for name, amount in amounts.items():
            if name in left:
                left[name] -= amount
    for name, text in (thresholds or {}).items():
        left[name] -= _threshold(text, capacity[name])
    return {name: max(0, amount) for name, amount in left.items()}


def _threshold(text: str, capacity: int) -> int:
    if text.endswith("%"):
        share = float(text.removesuffix("%")) / 100
        return 0 if share >= 1 else int(capacity * share)
    return parse_resources({"memory": text})["memory"]


def _written(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in format_resources(amounts).items()}
