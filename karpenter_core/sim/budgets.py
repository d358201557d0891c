"""The disruption controller: computes `disruptionsAllowed` of each budget."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.kube.resources import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from karpenter_core.sim.fields import Json, entries, labels_of, section
from karpenter_core.sim.pods import is_ready, with_condition
from karpenter_core.sim.registry import parse_time
from karpenter_core.sim.selectors import matches_selector
from karpenter_core.sim.simulated_controller import SimulatedController
from karpenter_core.sim.store import DELETED, Key

if TYPE_CHECKING:
    from collections.abc import Hashable

    from karpenter_core.clock import Clock
    from karpenter_core.sim.registry import Registry
    from karpenter_core.sim.store import ObjectChange

__all__ = ["DisruptionBudgetController", "scaled"]

_EVICTION_TIMEOUT: Final = timedelta(minutes=2)  # upstream's DeletionTimeout
_SCALED_KINDS: Final = {kind.kind: kind for kind in (REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS)}
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})


def scaled(value: int | str, total: int, *, up: bool) -> int:
    """Return an int-or-percentage of a total, rounded as asked."""
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-percent * total // 100) if up else percent * total // 100


@dataclass(slots=True)
class _CoveredPods:
    """The pods that a budget covers and that have not ended, counted as they change."""

    selector: Json | None
    pods: dict[Key, Json] = field(default_factory=dict[Key, Json])
    healthy: int = 0
    controllers: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """Number of pods of each controller, by its kind and name."""

    def put(self, key: Key, pod: Json | None) -> None:
        """Record a version of a pod; None if it is gone."""
        before = self.pods.pop(key, None)
        if before is not None:
            self._count(before, -1)
        if pod is not None and pod["status"].get("phase") not in _TERMINAL:
            self.pods[key] = pod
            self._count(pod, 1)

    def _count(self, pod: Json, amount: int) -> None:
        self.healthy += amount * _is_healthy(pod)
        owner = _controller_reference(pod)
        if owner is not None:
            self.controllers[owner] += amount
            if not self.controllers[owner]:
                del self.controllers[owner]


class DisruptionBudgetController(SimulatedController):
    """Keeps the status of every budget."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        super().__init__(registry, clock)
        self._covered: Final = dict[Key, _CoveredPods]()
        self.follow(POD_DISRUPTION_BUDGETS, self._on_budget)
        self.follow(PODS, self._on_pod)
        for kind in _SCALED_KINDS.values():
            self.follow(kind, self._on_workload)

    def reconcile(self, key: Hashable) -> None:
        """Count a budget's pods."""
        match key:
            case (str(namespace), str(name)):
                budget = self.registry.find(POD_DISRUPTION_BUDGETS, name, namespace)
            case _:
                raise AssertionError(key)
        if budget is not None:
            status = self._status_of(budget)
            self.registry.patch(
                POD_DISRUPTION_BUDGETS, {"status": status}, name, namespace, part="status"
            )

    def _on_budget(self, change: ObjectChange) -> None:
        key, selector = change.stored.key, change.stored.obj["spec"].get("selector")
        if change.type == DELETED:
            self._covered.pop(key, None)
            return
        covered = self._covered.get(key)
        if covered is None or covered.selector != selector:
            covered = self._covered[key] = _CoveredPods(selector)
            for stored in self.registry.store.all(PODS, key[0]):
                if matches_selector(selector, labels_of(stored.obj)):
                    covered.put(stored.key, stored.obj)
        self.enqueue(key)

    def _on_pod(self, change: ObjectChange) -> None:
        pod, labels = change.stored.obj, labels_of(change.stored.obj)
        for budget in self.registry.store.all(POD_DISRUPTION_BUDGETS, change.stored.key[0]):
            covered = self._covered.get(budget.key)
            if covered is None:
                continue  # a budget of this moment, which reads all pods
            is_covered = matches_selector(covered.selector, labels)
            is_gone = change.type == DELETED or not is_covered
            covered.put(change.stored.key, None if is_gone else pod)
            if is_covered:
                self.enqueue(budget.key)

    def _on_workload(self, change: ObjectChange) -> None:
        for budget in self.registry.store.all(POD_DISRUPTION_BUDGETS, change.stored.key[0]):
            self.enqueue(budget.key)

    def _status_of(self, budget: Json) -> Json:
        namespace = budget["metadata"]["namespace"]
        covered = self._covered[namespace, budget["metadata"]["name"]]
        evicted = section(budget["status"], "disruptedPods")
        disrupted = self._still_disrupted(evicted, namespace, covered)
        healthy = covered.healthy - sum(
            _is_healthy(covered.pods[namespace, name]) for name in disrupted
        )
        expected, desired = self._expectation(budget["spec"], namespace, covered)
        allowed = max(0, healthy - desired) if expected else 0
        gone: dict[str, str | None] = {name: None for name in evicted if name not in disrupted}
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": "SufficientPods" if allowed else "InsufficientPods",
        }
        conditions = entries(budget["status"], "conditions")
        status: Json = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"]["generation"],
            "conditions": with_condition(conditions, condition, self.clock.now()),
        }
        return status | ({"disruptedPods": gone} if gone else {})

    def _still_disrupted(self, evicted: Json, namespace: str, covered: _CoveredPods) -> set[str]:
        """Return the evicted pods without a deletion timestamp, unless their eviction has timed out."""
        now = self.clock.now()
        disrupted: set[str] = set()
        for name, since in evicted.items():
            pod = covered.pods.get((namespace, name))
            is_staying = pod is not None and "deletionTimestamp" not in pod["metadata"]
            if is_staying and now - parse_time(since) < _EVICTION_TIMEOUT:
                disrupted.add(name)
        return disrupted

    def _expectation(self, spec: Json, namespace: str, covered: _CoveredPods) -> tuple[int, int]:
        """Return the expected number of pods, and the number that must stay healthy."""
        if "maxUnavailable" in spec:
            expected = self._wanted_replicas(namespace, covered)
            spare = scaled(spec["maxUnavailable"], expected, up=True)
            return expected, max(0, expected - spare)
        least: int | str = spec.get("minAvailable", 1)
        if isinstance(least, int):
            return len(covered.pods), least
        expected = self._wanted_replicas(namespace, covered)
        return expected, scaled(least, expected, up=True)

    def _wanted_replicas(self, namespace: str, covered: _CoveredPods) -> int:
        """Sum the replicas of the workloads that the pods belong to."""
        replicas_by_owner: dict[str, int] = {}
        for kind, name in covered.controllers:
            owner = self.registry.find(_SCALED_KINDS[kind], name, namespace)
            while owner is not None:
                above = self._controller_of(owner)
                if above is None:
                    replicas_by_owner[owner["metadata"]["uid"]] = owner["spec"].get("replicas", 0)
                owner = above
        return sum(replicas_by_owner.values())

    def _controller_of(self, obj: Json) -> Json | None:
        reference = _controller_reference(obj)
        if reference is None:
            return None
        kind, name = reference
        return self.registry.find(_SCALED_KINDS[kind], name, obj["metadata"]["namespace"])


def _controller_reference(obj: Json) -> tuple[str, str] | None:
    """Return kind and name of the controller of an object, if it is one with replicas."""
    for owner in entries(obj["metadata"], "ownerReferences"):
        if owner.get("controller") and owner["kind"] in _SCALED_KINDS:
            return owner["kind"], owner["name"]
    return None


def _is_healthy(pod: Json) -> bool:
    return is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
