"""Records a simulated cluster: integrals of cost, nodes, pending pods, use.

Every change of an object first adds what was true until then, so that means and costs are exact
and do not depend on a sampling rate.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.labels import CAPACITY_TYPE, CPU, INSTANCE_TYPE, MEMORY, NODE_POOL, ZONE
from karpenter_core.api.nodeclaim import DISRUPTION_REASON
from karpenter_core.kube.resources import NODES, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.fields import entries, labels_of, section
from karpenter_core.sim.filters import amounts_of, requests_of
from karpenter_core.sim.store import DELETED

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.clock import Clock
    from karpenter_core.sim.fields import Json
    from karpenter_core.sim.store import ObjectChange, ObjectStore

__all__ = ["Level", "PriceOf", "RecordedClaim", "SimulationRecorder"]

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_MEASURED: Final = (CPU, MEMORY)
_TARGET: Final = "DisruptionTarget"

PriceOf: TypeAlias = "Callable[[str, str, str, str], float | None]"
"""Returns the price per hour by NodePool, instance type, zone and capacity type."""


@dataclass(slots=True)
class Level:
    """Amounts at one time, or their integrals over time."""

    price: float = 0.0
    nodes: float = 0.0
    pods: float = 0.0
    pending: float = 0.0
    requested: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Of cpu and memory, by pods on nodes."""
    allocatable: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def add(self, level: Level, seconds: float) -> None:
        """Add a level that lasted this long."""
        self.price += level.price * seconds
        self.nodes += level.nodes * seconds
        self.pods += level.pods * seconds
        self.pending += level.pending * seconds
        for index in range(len(_MEASURED)):
            self.requested[index] += level.requested[index] * seconds
            self.allocatable[index] += level.allocatable[index] * seconds


@dataclass(slots=True, kw_only=True)
class RecordedClaim:
    """A NodeClaim with an instance."""

    pool: str
    instance_type: str
    capacity_type: str
    zone: str
    launched: float
    price: float
    is_priced: bool
    ended: float | None = None
    reason: str = ""
    """Reason of its disruption; empty if it had none."""


@dataclass(slots=True, kw_only=True)
class _RecordedPod:
    created: float
    is_daemon: bool
    requests: tuple[float, float]
    bound: float | None = None
    started: float | None = None
    is_counted: bool = True
    """Whether it is among the present pods."""
    evicted_for: str = ""


@final
class SimulationRecorder:
    """Follows the objects of a cluster from `begin` on."""

    def __init__(self, store: ObjectStore, clock: Clock, *, price_of: PriceOf) -> None:
        self._store: Final = store
        self._clock: Final = clock
        self._price_of: Final = price_of
        self._now = Level()
        self._until = clock.monotonic()
        self._began = self._until
        self._pods: Final = dict[str, _RecordedPod]()
        self._nodes: Final = dict[str, tuple[float, float]]()
        self._stops: Final = list["Callable[[], None]"]()
        self.total: Final = Level()
        self.window = Level()
        self.claims: Final = dict[str, RecordedClaim]()
        self.pending_seconds: Final = list[float]()
        """Time from creation to binding of each pod that was bound."""
        self.startup_seconds: Final = list[float]()
        """Time from creation to Running of each pod that ran."""
        self.evictions: Final = Counter[str]()
        """Pods that a disruption ended, by its reason."""
        self.lost = 0
        """Pods that went with their node, without an eviction."""
        self.elapsed_at_end = 0.0
        self.peak_nodes = 0
        self.peak_pending = 0

    def begin(self) -> None:
        """Start at this moment, with the objects that are there."""
        self._began = self._until = self._clock.monotonic()
        for kind, listen in (
            (NODE_CLAIMS, self._on_claim),
            (NODES, self._on_node),
            (PODS, self._on_pod),
        ):
            self._stops.append(self._store.listen(kind, listen))

    def end(self) -> None:
        """Stop following."""
        self.advance()
        self.elapsed_at_end = self.elapsed
        for stop in self._stops:
            stop()

    @property
    def level(self) -> Level:
        """The amounts of now."""
        return self._now

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self._clock.monotonic() - self._began

    @property
    def waiting_seconds(self) -> list[float]:
        """The time that each pod without a node had waited at the end."""
        now = self.elapsed_at_end
        return sorted(
            now - pod.created
            for pod in self._pods.values()
            if pod.is_counted and pod.bound is None and not pod.is_daemon
        )

    def advance(self) -> None:
        """Integrate up to this moment."""
        now = self._clock.monotonic()
        if now > self._until:
            self.total.add(self._now, now - self._until)
            self.window.add(self._now, now - self._until)
            self._until = now

    def take_window(self) -> Level:
        """Return the integrals since the last call."""
        self.advance()
        taken, self.window = self.window, Level()
        return taken

    # -- NodeClaims --------------------------------------------------------------------------------

    def _on_claim(self, change: ObjectChange) -> None:
        claim, uid = change.stored.obj, change.stored.uid
        recorded = self.claims.get(uid)
        if recorded is None and change.type != DELETED:
            if section(claim, "status").get("providerID"):
                self._note_launch(uid, claim)
            return
        if recorded is None or recorded.ended is not None:
            return
        recorded.reason = recorded.reason or _disruption_reason(claim)
        if change.type == DELETED:
            self.advance()
            recorded.ended = self.elapsed
            self._now.price -= recorded.price
            self._now.nodes -= 1

    def _note_launch(self, uid: str, claim: Json) -> None:
        labels = labels_of(claim)
        pool, zone = labels.get(NODE_POOL, ""), labels.get(ZONE, "")
        instance_type = labels.get(INSTANCE_TYPE, "")
        capacity_type = labels.get(CAPACITY_TYPE, "")
        if not instance_type or not capacity_type:
            return  # the labels follow the provider ID
        self.advance()
        price = self._price_of(pool, instance_type, zone, capacity_type)
        self.claims[uid] = RecordedClaim(
            pool=pool,
            instance_type=instance_type,
            capacity_type=capacity_type,
            zone=zone,
            launched=self.elapsed,
            price=price or 0.0,
            is_priced=price is not None,
        )
        self._now.price += price or 0.0
        self._now.nodes += 1
        self.peak_nodes = max(self.peak_nodes, int(self._now.nodes))

    # -- Nodes -------------------------------------------------------------------------------------

    def _on_node(self, change: ObjectChange) -> None:
        node, uid = change.stored.obj, change.stored.uid
        if change.type == DELETED:
            amounts = (0.0, 0.0)
        else:
            allocatable = amounts_of(section(section(node, "status"), "allocatable"))
            amounts = (float(allocatable.get(CPU, 0)), float(allocatable.get(MEMORY, 0)))
        before = self._nodes.get(uid, (0.0, 0.0))
        if amounts != before:
            self.advance()
            for index in range(len(_MEASURED)):
                self._now.allocatable[index] += amounts[index] - before[index]
        if change.type == DELETED:
            self._nodes.pop(uid, None)
        else:
            self._nodes[uid] = amounts

    # -- pods --------------------------------------------------------------------------------------

    def _on_pod(self, change: ObjectChange) -> None:
        pod, uid = change.stored.obj, change.stored.uid
        recorded = self._pods.get(uid)
        if recorded is None:
            if change.type == DELETED:
                return
            recorded = self._pods[uid] = self._note_created(pod)
        if not recorded.evicted_for and not recorded.is_daemon:
            recorded.evicted_for = _eviction_reason(pod)
            if recorded.evicted_for:
                self.evictions[recorded.evicted_for] += 1
        if recorded.bound is None and pod["spec"].get("nodeName") and recorded.is_counted:
            self._note_bound(recorded)
        if recorded.started is None and section(pod, "status").get("phase") == "Running":
            recorded.started = self.elapsed
            if not recorded.is_daemon:
                self.startup_seconds.append(recorded.started - recorded.created)
        ended = change.type == DELETED or section(pod, "status").get("phase") in _TERMINAL
        if ended and recorded.is_counted:
            self.lost += _is_lost(change, recorded)
            self._note_ended(recorded)
        if change.type == DELETED:
            del self._pods[uid]

    def _note_created(self, pod: Json) -> _RecordedPod:
        self.advance()
        owners = entries(pod["metadata"], "ownerReferences")
        requests = requests_of(pod)
        recorded = _RecordedPod(
            created=self.elapsed,
            is_daemon=any(owner["kind"] == "DaemonSet" for owner in owners),
            requests=(float(requests.get(CPU, 0)), float(requests.get(MEMORY, 0))),
        )
        if not recorded.is_daemon:
            self._now.pods += 1
            self._now.pending += 1
            self.peak_pending = max(self.peak_pending, int(self._now.pending))
        return recorded

    def _note_bound(self, recorded: _RecordedPod) -> None:
        self.advance()
        recorded.bound = self.elapsed
        for index in range(len(_MEASURED)):
            self._now.requested[index] += recorded.requests[index]
        if not recorded.is_daemon:
            self._now.pending -= 1
            self.pending_seconds.append(recorded.bound - recorded.created)

    def _note_ended(self, recorded: _RecordedPod) -> None:
        self.advance()
        recorded.is_counted = False
        if recorded.bound is not None:
            for index in range(len(_MEASURED)):
                self._now.requested[index] -= recorded.requests[index]
        if not recorded.is_daemon:
            self._now.pods -= 1
            self._now.pending -= recorded.bound is None


def _is_lost(change: ObjectChange, recorded: _RecordedPod) -> bool:
    """Tell whether a pod is gone at once, as only pods of nodes that are gone are."""
    metadata = change.stored.obj["metadata"]
    is_forced = change.type == DELETED and "deletionTimestamp" not in metadata
    is_running = section(change.stored.obj, "status").get("phase") not in _TERMINAL
    return is_forced and is_running and recorded.bound is not None and not recorded.is_daemon


def _disruption_reason(claim: Json) -> str:
    for condition in entries(section(claim, "status"), "conditions"):
        if condition["type"] == DISRUPTION_REASON and condition["status"] == "True":
            return condition.get("reason", "")
    return ""


def _eviction_reason(pod: Json) -> str:
    for condition in entries(section(pod, "status"), "conditions"):
        if condition["type"] == _TARGET and condition["status"] == "True":
            return condition.get("reason", "")
    return ""
