"""Records the results of a pass in ledger, Events, metrics and log."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.notices import Notice
from karpenter_core.scheduling.problem import PoolConstraint, PoolRejection, UnschedulablePod
from karpenter_core.scheduling.virtual_pods import virtual_placements
from karpenter_core.state.events import NodesNominated, PodsDecided, VirtualPodsPlaced
from karpenter_core.state.pod_rules import pod_ref
from karpenter_core.state.virtual_pods import count_virtual_pods

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.judgements import FailedJudgement
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import PodView
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.provisioning.new_claims import DecisionRef
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.scheduling.problem import SchedulingPlan
    from karpenter_core.state.ignored_pods import IgnoredPod
    from karpenter_core.state.launch_limits import LaunchRefusal
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "PassRecorder",
    "failed_scheduling_notice",
    "no_compatible_types_notice",
    "nominated_notice",
    "waits_for_reservation",
    "with_closed_pools",
    "with_held_pools",
    "with_unready_pools",
]

CONTROLLER: Final = "provisioner"
NO_INSTANCE_TYPES_WINDOW: Final = timedelta(minutes=1)  # upstream default
FAILED_WINDOW: Final = timedelta(minutes=5)  # upstream default


@final
class PassRecorder:
    """Records the decisions of passes."""

    def __init__(
        self, *, writer: ObjectWriter, runtime: ControllerRuntime, nomination_window: timedelta
    ) -> None:
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._runtime = runtime
        self._metrics = runtime.metrics
        self._window = nomination_window
        self._log: FilteringBoundLogger = structlog.get_logger("provisioner")

    @contextmanager
    def measure_pass(self, decision_ref: DecisionRef, *, pods: int) -> Generator[None]:
        """Measure the pass that runs inside the block."""
        labels = {"controller": CONTROLLER, "scheduling_id": decision_ref.id}
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

    def clear_unplaced(self) -> None:
        """Reset the metrics of pods without a node."""
        self._metrics.scheduler_unschedulable_pods.labels(controller=CONTROLLER).set(0)
        self._metrics.scheduler_pending_pods_by_zone.clear()

    def report_ignored(self, ignored: Sequence[IgnoredPod], snapshot: Snapshot) -> None:
        """Report the pending pods that cannot be scheduled because of their own fields."""
        ignored = tuple(item for item in ignored if not item.pod.is_virtual)
        self._metrics.scheduler_ignored_pods.set(
            sum(not item.silent and not item.expendable for item in ignored)
        )
        self._metrics.scheduler_expendable_pods.set(sum(item.expendable for item in ignored))
        # The placements of paused pods show that their nominations are over.
        failed = frozenset(item.pod.uid for item in ignored if not item.paused)
        self._observe_first_decisions(failed, snapshot)
        self._cluster_state.fold(PodsDecided(failed=failed, at=self._runtime.clock.now()))
        for item in ignored:
            if not item.silent:
                self._writer.publish(failed_scheduling_notice(item.pod, item.reason))

    def report_failed_judgements(self, failed: Iterable[FailedJudgement]) -> None:
        """Report the objects that the pass left out because they could not be evaluated."""
        self._writer.report_failed_judgements(failed, controller=CONTROLLER)

    def count_held_pools(self, held_pools: Mapping[str, LaunchRefusal]) -> None:
        """Count the pools that launch limits excluded from a pass."""
        for pool, refusal in held_pools.items():
            self._metrics.nodeclaims_held_back.labels(nodepool=pool, reason=refusal.limit).inc()

    def nominate_existing_nodes(self, plan: SchedulingPlan, snapshot: Snapshot) -> None:
        """Nominate existing nodes for their planned pods, so that they are not disrupted."""
        if not plan.existing:
            return
        now = self._runtime.clock.now()
        self._cluster_state.fold(
            NodesNominated(names=tuple(plan.existing), until=now + self._window)
        )
        self._cluster_state.fold(
            PodsDecided(
                placed={pod.uid: name for name, pods in plan.existing.items() for pod in pods},
                at=now,
            )
        )
        for name, pods in plan.existing.items():
            state_node = snapshot.state_node(name)
            claim = state_node.claim.name if state_node is not None and state_node.claim else ""
            node = state_node.node.name if state_node is not None and state_node.node else ""
            self._publish_nominated(pods, claim=claim, node=node)

    def record_virtual_pods(
        self, plan: SchedulingPlan, snapshot: Snapshot, names: Sequence[str | None] = ()
    ) -> None:
        """Record where the virtual pods are: on existing capacity, on new claims or nowhere.

        `names` are the claims that were created for the plan, None for one that was not.
        """
        if not snapshot.virtual_pods and not snapshot.virtual_pod_counts:
            return
        refused = [number for number, name in enumerate(names) if name is None]
        self._cluster_state.fold(
            VirtualPodsPlaced(
                counts=count_virtual_pods(snapshot, plan.existing),
                placements=virtual_placements(plan, snapshot.virtual_pods, refused=refused),
            )
        )

    def record_plan(
        self,
        plan: SchedulingPlan,
        names: Sequence[str | None],
        snapshot: Snapshot,
        *,
        quiet: bool,
        refused: Mapping[int, str] | None = None,
    ) -> None:
        """Record the result for every pod; `quiet` leaves out Events of unschedulable pods.

        A pod that waits for a reservation has not failed: the next pass decides. A pod whose planned
        claim was `refused` (by the claim's index) gets the reason in an Event.
        """
        self.report_failed_judgements(plan.set_aside)
        for name, constraint in plan.unusable_pools.items():
            pool = snapshot.node_pools.get(name)
            if pool is not None:
                self._writer.publish(no_compatible_types_notice(pool, constraint))
        placed = [pod.uid for claim in plan.claims for pod in claim.pods]
        placed += [pod.uid for pods in plan.existing.values() for pod in pods]
        self._observe_first_decisions((*placed, *plan.unschedulable), snapshot)
        by_zone = self._metrics.scheduler_pending_pods_by_zone
        by_zone.clear()
        for zone, count in plan.pending_by_zone.items():
            by_zone.labels(controller=CONTROLLER, zone=zone).set(count)
        for planned, name in zip(plan.claims, names, strict=True):
            if name is not None:
                self._publish_nominated(planned.pods, claim=name)
        failed = {
            uid: reason
            for uid, reason in plan.unschedulable.items()
            if not waits_for_reservation(reason)
        }
        unserved = {
            pod.uid: UnschedulablePod(message=why)
            for number, why in (refused or {}).items()
            for pod in plan.claims[number].pods
        }
        failed |= unserved
        self._metrics.scheduler_unschedulable_pods.labels(controller=CONTROLLER).set(len(failed))
        if plan.unschedulable or unserved:
            undecided = frozenset((*plan.unschedulable, *unserved))
            self._cluster_state.fold(PodsDecided(failed=undecided, at=self._runtime.clock.now()))
        if quiet or not failed:
            return
        for uid, reason in failed.items():
            pod = snapshot.pods.get(uid)
            if pod is not None:
                self._writer.publish(failed_scheduling_notice(pod, reason.message))
        self._log.error(
            "could not schedule pods",
            pods=len(failed),
            reason=next(iter(failed.values())).message,
        )

    def _publish_nominated(self, pods: Iterable[PodView], *, claim: str, node: str = "") -> None:
        for pod in pods:
            self._writer.publish(nominated_notice(pod, claim=claim, node=node))

    def _observe_first_decisions(self, pod_uids: Iterable[str], snapshot: Snapshot) -> None:
        """Measure how long pods waited for their first decision, good or bad."""
        now = self._runtime.clock.now()
        ledger = snapshot.ledger
        for uid in pod_uids:
            seen = ledger.first_seen.get(uid)
            if seen is not None and uid not in ledger.decisions:
                waited = (now - seen).total_seconds()
                self._metrics.pods.scheduling_decision_duration.observe(waited)


def with_held_pools(
    plan: SchedulingPlan, held_pools: Mapping[str, LaunchRefusal]
) -> SchedulingPlan:
    """Return the plan with excluded pools among the reasons of unschedulable pods."""
    if not held_pools or not plan.unschedulable:
        return plan
    rejections = {
        name: PoolRejection(constraint=PoolConstraint.LIMIT, detail=refusal.message)
        for name, refusal in sorted(held_pools.items())
    }
    texts = [f"{PoolConstraint.LIMIT}: {rejection.detail}" for rejection in rejections.values()]
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


def with_closed_pools(
    plan: SchedulingPlan, closed_pools: Mapping[str, Mapping[str, str]]
) -> SchedulingPlan:
    """Return the plan with the pools that are closed to some pods among the reasons of those."""
    if closed_pools.keys().isdisjoint(plan.unschedulable):
        return plan
    changed = dict(plan.unschedulable)
    for uid in closed_pools.keys() & changed.keys():
        rejections = {
            name: PoolRejection(constraint=PoolConstraint.LIMIT, detail=why)
            for name, why in sorted(closed_pools[uid].items())
        }
        texts = [f"{PoolConstraint.LIMIT}: {rejection.detail}" for rejection in rejections.values()]
        changed[uid] = replace(
            changed[uid],
            message="; ".join((*texts, changed[uid].message)),
            pools={**changed[uid].pools, **rejections},
        )
    return replace(plan, unschedulable=changed)


def with_unready_pools(plan: SchedulingPlan, unready: Mapping[str, str]) -> SchedulingPlan:
    """Return the plan with the pools that are not ready in the messages of unschedulable pods."""
    if not unready:
        return plan
    texts = [f'nodepool "{name}" is not ready: {why}' for name, why in unready.items()]
    return replace(
        plan,
        unschedulable={
            uid: replace(reason, message="; ".join((reason.message, *texts)))
            for uid, reason in plan.unschedulable.items()
        },
    )


def waits_for_reservation(reason: UnschedulablePod) -> bool:
    """Tell whether a pod only waits because reserved capacity is in use at the moment."""
    return any(
        rejection.constraint is PoolConstraint.RESERVATION for rejection in reason.pools.values()
    )


def no_compatible_types_notice(pool: NodePool, constraint: PoolConstraint) -> Notice:
    """Return the Event on a NodePool for which no instance type is compatible."""
    message = "NodePool requirements filtered out all compatible available instance types"
    if constraint is PoolConstraint.MIN_VALUES:
        message += " due to minValues incompatibility"
    return Notice(
        regarding=pool.ref,
        type="Warning",
        reason="NoCompatibleInstanceTypes",
        message=message,
        dedupe=(pool.uid,),
        window=NO_INSTANCE_TYPES_WINDOW,
    )


def failed_scheduling_notice(pod: PodView, reason: str) -> Notice:
    """Return the Event on a pod that says why it cannot be scheduled."""
    return Notice(
        regarding=pod_ref(pod),
        type="Warning",
        reason="FailedScheduling",
        message=f"Failed to schedule pod, {reason}",
        dedupe=(pod.uid,),
        window=FAILED_WINDOW,
    )


def nominated_notice(pod: PodView, *, claim: str, node: str) -> Notice:
    """Return the Event on a pod that names the claim or node planned for it."""
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
