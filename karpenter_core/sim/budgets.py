"""The disruption controller: computes `disruptionsAllowed` of each budget."""

from __future__ import annotations

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
from karpenter_core.sim.store import DELETED

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


class DisruptionBudgetController(SimulatedController):
    """Keeps the status of every budget."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        super().__init__(registry, clock)
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
        if change.type != DELETED:
            self.enqueue(change.stored.key)

    def _on_pod(self, change: ObjectChange) -> None:
        labels = labels_of(change.stored.obj)
        for budget in self.registry.store.all(POD_DISRUPTION_BUDGETS, change.stored.key[0]):
            if matches_selector(budget.obj["spec"].get("selector"), labels):
                self.enqueue(budget.key)

    def _on_workload(self, change: ObjectChange) -> None:
        for budget in self.registry.store.all(POD_DISRUPTION_BUDGETS, change.stored.key[0]):
            self.enqueue(budget.key)

    def _status_of(self, budget: Json) -> Json:
        selector = budget["spec"].get("selector")
        pods = [
            pod
            for pod in self.registry.objects(PODS, budget["metadata"]["namespace"])
            if matches_selector(selector, labels_of(pod))
            and pod["status"].get("phase") not in _TERMINAL
        ]
        disrupted = self._still_disrupted(section(budget["status"], "disruptedPods"), pods)
        healthy = sum(
            is_ready(pod)
            and "deletionTimestamp" not in pod["metadata"]
            and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )
        expected, desired = self._expectation(budget["spec"], pods)
        allowed = max(0, healthy - desired) if expected else 0
        old = section(budget["status"], "disruptedPods")
        gone: dict[str, str | None] = {name: None for name in old if name not in disrupted}
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

    def _still_disrupted(self, disrupted: Json, pods: list[Json]) -> set[str]:
        """Return the evicted pods without a deletion timestamp, unless their eviction has timed out."""
        now = self.clock.now()
        staying = {
            pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]
        }
        return {
            name
            for name, since in disrupted.items()
            if name in staying and now - parse_time(since) < _EVICTION_TIMEOUT
        }

    def _expectation(self, spec: Json, pods: list[Json]) -> tuple[int, int]:
        """Return the expected number of pods, and the number that must stay healthy."""
        if "maxUnavailable" in spec:
            expected = self._wanted_replicas(pods)
            spare = scaled(spec["maxUnavailable"], expected, up=True)
            return expected, max(0, expected - spare)
        least: int | str = spec.get("minAvailable", 1)
        if isinstance(least, int):
            return len(pods), least
        expected = self._wanted_replicas(pods)
        return expected, scaled(least, expected, up=True)

    def _wanted_replicas(self, pods: list[Json]) -> int:
        """Sum the replicas of the workloads that the pods belong to."""
        replicas_by_owner: dict[str, int] = {}
        for pod in pods:
            owner = self._controller_of(pod)
            while owner is not None:
                above = self._controller_of(owner)
                if above is None:
                    replicas_by_owner[owner["metadata"]["uid"]] = owner["spec"].get("replicas", 0)
                owner = above
        return sum(replicas_by_owner.values())

    def _controller_of(self, obj: Json) -> Json | None:
        for owner in entries(obj["metadata"], "ownerReferences"):
            kind = _SCALED_KINDS.get(owner["kind"])
            if owner.get("controller") and kind is not None:
                return self.registry.find(kind, owner["name"], obj["metadata"]["namespace"])
        return None
