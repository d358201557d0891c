"""What a pass leaves behind: facts in the ledger, Events on pods, numbers."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.notices import Notice
from karpenter_core.scheduling.problem import Constraint, PoolRejection, Unschedulable
from karpenter_core.state.events import Nominated, PodsDecided
from karpenter_core.state.pod_rules import pod_ref

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.judgements import FailedJudgement
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import PodView
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.provisioning.claims import Decided
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.scheduling.problem import SchedulingPlan
    from karpenter_core.state.brakes import Refusal
    from karpenter_core.state.problem import IgnoredPod
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "PassRecorder",
    "failed_scheduling",
    "no_compatible_instance_types",
    "nominated",
    "waits_for_reservation",
    "with_held_pools",
]

CONTROLLER: Final = "provisioner"
BARREN_WINDOW: Final = timedelta(minutes=1)  # upstream default
FAILED_WINDOW: Final = timedelta(minutes=5)  # upstream default


@final
class PassRecorder:
    """Writes down what passes decide."""

    def __init__(self, *, hands: Hands, runtime: Runtime, nomination_window: timedelta) -> None:
        self._hands = hands
        self._feed = hands.feed
        self._runtime = runtime
        self._metrics = runtime.metrics
        self._window = nomination_window
        self._log: FilteringBoundLogger = structlog.get_logger("provisioner")

    @contextmanager
    def measured(self, decided: Decided, *, pods: int) -> Generator[None]:
        """Measure the pass that runs inside."""
        labels = {"controller": CONTROLLER, "scheduling_id": decided.id}
        self._metrics.scheduler_queue_depth.clear()
        self._metrics.scheduler_unfinished_work.clear()
        self._metrics.scheduler_queue_depth.labels(**labels).set(pods)
        started = self._runtime.clock.monotonic()
        unfinished = self._metrics.scheduler_unfinished_work.labels(**labels)
        unfinished.set_function(lambda: self._runtime.clock.monotonic() - started)
        try:
            yield
        finally:
            self._metrics.scheduler_queue_depth.labels(**labels).set(0)
            self._metrics.scheduler_unfinished_work.clear()
            self._metrics.scheduling_duration.labels(controller=CONTROLLER).observe(
                self._runtime.clock.monotonic() - started
            )

    def nothing_to_place(self) -> None:
        """Take back what the last pass said of pods without a place."""
        self._metrics.scheduler_unschedulable_pods.labels(controller=CONTROLLER).set(0)
        self._metrics.scheduler_pending_pods_by_zone.clear()

    def ignore(self, ignored: Sequence[IgnoredPod], snapshot: Snapshot) -> None:
        """Say which pending pods cannot be used as they are."""
        self._metrics.scheduler_ignored_pods.set(sum(not item.silent for item in ignored))
        if not ignored:
            return
        failed = frozenset(item.pod.uid for item in ignored)
        self._observe_first_decisions(failed, snapshot)
        self._feed.fold(PodsDecided(failed=failed, at=self._runtime.clock.now()))
        for item in ignored:
            if not item.silent:
                self._hands.publish(failed_scheduling(item.pod, item.reason))

    def set_aside(self, failed: Iterable[FailedJudgement]) -> None:
        """Tell of what the pass is made without, since it cannot be judged."""
        self._hands.set_aside(failed, controller=CONTROLLER)

    def hold(self, held: Mapping[str, Refusal]) -> None:
        """Count the pools that a pass leaves out."""
        for pool, refusal in held.items():
            self._metrics.nodeclaims_held_back.labels(nodepool=pool, reason=refusal.brake).inc()

    def place_existing(self, plan: SchedulingPlan, snapshot: Snapshot) -> None:
        """Expect pods on the machines that are there, before anything else can claim the room."""
        if not plan.existing:
            return
        now = self._runtime.clock.now()
        self._feed.fold(Nominated(names=tuple(plan.existing), until=now + self._window))
        self._feed.fold(
            PodsDecided(
                placed={pod.uid: name for name, pods in plan.existing.items() for pod in pods},
                at=now,
            )
        )
        for name, pods in plan.existing.items():
            machine = snapshot.state_node(name)
            claim = machine.claim.name if machine is not None and machine.claim else ""
            node = machine.node.name if machine is not None and machine.node else ""
            self._nominate(pods, claim=claim, node=node)

    def record(
        self,
        plan: SchedulingPlan,
        names: Sequence[str | None],
        snapshot: Snapshot,
        *,
        quiet: bool,
        refused: Mapping[int, str] | None = None,
    ) -> None:
        """Note what became of every pod; `quiet` leaves out Events of pods without a place.

        A pod that waits for a reservation to come free has not failed: the next pass decides. One
        whose machine was planned and then `refused` (by the claim's number) is told why.
        """
        self.set_aside(plan.set_aside)
        for name, constraint in plan.barren.items():
            pool = snapshot.node_pools.get(name)
            if pool is not None:
                self._hands.publish(no_compatible_instance_types(pool, constraint))
        placed = [pod.uid for claim in plan.claims for pod in claim.pods]
        placed += [pod.uid for pods in plan.existing.values() for pod in pods]
        self._observe_first_decisions((*placed, *plan.unschedulable), snapshot)
        by_zone = self._metrics.scheduler_pending_pods_by_zone
        by_zone.clear()
        for zone, count in plan.pending_by_zone.items():
            by_zone.labels(controller=CONTROLLER, zone=zone).set(count)
        for planned, name in zip(plan.claims, names, strict=True):
            if name is not None:
                self._nominate(planned.pods, claim=name)
        failed = {
            uid: reason
            for uid, reason in plan.unschedulable.items()
            if not waits_for_reservation(reason)
        }
        unserved = {
            pod.uid: Unschedulable(message=why)
            for number, why in (refused or {}).items()
            for pod in plan.claims[number].pods
        }
        failed |= unserved
        self._metrics.scheduler_unschedulable_pods.labels(controller=CONTROLLER).set(len(failed))
        if plan.unschedulable or unserved:
            undecided = frozenset((*plan.unschedulable, *unserved))
            self._feed.fold(PodsDecided(failed=undecided, at=self._runtime.clock.now()))
        if quiet or not failed:
            return
        for uid, reason in failed.items():
            pod = snapshot.pods.get(uid)
            if pod is not None:
                self._hands.publish(failed_scheduling(pod, reason.message))
        self._log.error(
            "could not schedule pods",
            pods=len(failed),
            reason=next(iter(failed.values())).message,
        )

    def _nominate(self, pods: Iterable[PodView], *, claim: str = "", node: str = "") -> None:
        for pod in pods:
            self._hands.publish(nominated(pod, claim=claim, node=node))

    def _observe_first_decisions(self, decided: Iterable[str], snapshot: Snapshot) -> None:
        """Measure how long pods waited for their first decision, good or bad."""
        now = self._runtime.clock.now()
        ledger = snapshot.ledger
        for uid in decided:
            seen = ledger.first_seen.get(uid)
            if seen is not None and uid not in ledger.decisions:
                waited = (now - seen).total_seconds()
                self._metrics.pods_scheduling_decision_duration.observe(waited)


def with_held_pools(plan: SchedulingPlan, held: Mapping[str, Refusal]) -> SchedulingPlan:
    """Return a plan that says also of pools that were left out why pods did not get a place there."""
    if not held or not plan.unschedulable:
        return plan
    rejections = {
        name: PoolRejection(constraint=Constraint.LIMIT, detail=refusal.why)
        for name, refusal in sorted(held.items())
    }
    texts = [f"{Constraint.LIMIT}: {rejection.detail}" for rejection in rejections.values()]
    return replace(
        plan,
        unschedulable={
            uid: replace(
                reason,
                message="; ".join(([reason.message] if reason.pools else []) + texts),
                pools={**reason.pools, **rejections},
            )
            for uid, reason in plan.unschedulable.items()
        },
    )


def waits_for_reservation(reason: Unschedulable) -> bool:
    """Tell whether a pod was put off only because reserved capacity is taken for the moment."""
    return any(
        rejection.constraint is Constraint.RESERVATION for rejection in reason.pools.values()
    )


def no_compatible_instance_types(pool: NodePool, constraint: Constraint) -> Notice:
    """Say on a NodePool that nothing can be launched for it, whatever pods ask for."""
    message = "NodePool requirements filtered out all compatible available instance types"
    if constraint is Constraint.MIN_VALUES:
        message += " due to minValues incompatibility"
    return Notice(
        regarding=pool.ref,
        type="Warning",
        reason="NoCompatibleInstanceTypes",
        message=message,
        dedupe=(pool.uid,),
        window=BARREN_WINDOW,
    )


def failed_scheduling(pod: PodView, reason: str) -> Notice:
    """Say on a pod why no node can be had for it."""
    return Notice(
        regarding=pod_ref(pod),
        type="Warning",
        reason="FailedScheduling",
        message=f"Failed to schedule pod, {reason}",
        dedupe=(pod.uid,),
        window=FAILED_WINDOW,
    )


def nominated(pod: PodView, *, claim: str = "", node: str = "") -> Notice:
    """Say on a pod where it is expected to run."""
    targets = [f"nodeclaim/{claim}"] if claim else []
    targets += [f"node/{node}"] if node else []
    return Notice(
        regarding=pod_ref(pod),
        type="Normal",
        reason="Nominated",
        message=f"Pod should schedule on: {', '.join(targets)}",
        dedupe=(pod.uid,),
        bucket="nominated",
    )
