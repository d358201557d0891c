"""The kubelets of all nodes, and the node life-cycle controller.

A node becomes Ready some time after it appears, runs the pods bound to it, and removes deleted
ones after their grace period (capped). A test may kill a node or make it unready.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.kube.resources import NODES, PODS
from karpenter_core.sim.fields import Json, entries, section
from karpenter_core.sim.pods import is_ready, with_condition
from karpenter_core.sim.registry import render_time
from karpenter_core.sim.simulated_controller import PodsByNode, SimulatedController
from karpenter_core.sim.store import DELETED

if TYPE_CHECKING:
    from collections.abc import Hashable

    from karpenter_core.clock import Clock
    from karpenter_core.sim.registry import Registry
    from karpenter_core.sim.store import ObjectChange

__all__ = ["KubeletTimes", "Kubelets", "has_kubelet", "node_is_ready"]

_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletTimes:
    """The durations of a kubelet's work on a node."""

    node_boot_seconds: float = 1.0
    """The time from the Node object's creation to Ready."""
    pod_start_seconds: float = 0.5
    """The time from binding (or from the node's readiness) to Running."""
    pod_stop_seconds: float = 1.0
    """The longest time that a deleted pod takes, whatever its grace period."""
    node_report_seconds: float = 10.0
    """The time until the kubelet corrects a Ready condition that another client wrote as not True."""


def has_kubelet(node: Json) -> bool:
    """Tell whether a node has a kubelet: all except those that kwok ignores by annotation."""
    return section(node["metadata"], "annotations").get("kwok.x-k8s.io/node", "fake") == "fake"


def node_is_ready(node: Json) -> bool:
    """Tell whether a node's Ready condition is true."""
    conditions = entries(section(node, "status"), "conditions")
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


class Kubelets(SimulatedController):
    """One actor for the kubelets of all nodes that have one."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        *,
        times: KubeletTimes | None = None,
    ) -> None:
        super().__init__(registry, clock)
        self._times: Final = times or KubeletTimes()
        self._booted: Final = set[str]()
        self._failed: Final = dict[str, str]()
        self._pods: Final = PodsByNode.followed_by(self)
        self.follow(NODES, self._on_node)
        self.follow(PODS, self._on_pod)

    def fail(self, node: str, *, ready: str = "Unknown") -> None:
        """Kill a node (`Unknown`) or make it unready (`False`): nothing runs or ends on it."""
        self._failed[node] = ready
        self.enqueue(("node", node))

    def heal(self, node: str) -> None:
        """Restore a failed node."""
        self._failed.pop(node, None)
        self.enqueue(("node", node))

    def reconcile(self, key: Hashable) -> None:
        """Update a node, boot one, or start or stop a pod."""
        match key:
            case ("boot", str(name)):
                self._booted.add(name)
                self._report_node(name)
            case ("node", str(name)):
                self._report_node(name)
            case ("pod", str(namespace), str(name)):
                self._run_pod(namespace, name)
            case _:
                raise AssertionError(key)

    def _on_node(self, change: ObjectChange) -> None:
        node = change.stored.obj
        name = node["metadata"]["name"]
        if change.type == DELETED:
            self._booted.discard(name)
            self._failed.pop(name, None)
        elif name in self._booted:
            if not node_is_ready(node) and name not in self._failed:
                self.enqueue(("node", name), after_seconds=self._times.node_report_seconds)
        elif has_kubelet(node):
            self.enqueue(("boot", name), after_seconds=self._times.node_boot_seconds or 1e-9)

    def _on_pod(self, change: ObjectChange) -> None:
        pod = change.stored.obj
        if change.type == DELETED or pod["spec"].get("nodeName", "") not in self._booted:
            return
        self._expect_pod(pod)

    def _expect_pod(self, pod: Json) -> None:
        """Set the timer for the next step of a pod, if any."""
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            grace = float(metadata["deletionGracePeriodSeconds"])
            delay = min(grace, self._times.pod_stop_seconds)
        elif pod["status"].get("phase") == "Pending" or not is_ready(pod):
            delay = self._times.pod_start_seconds
        else:
            return
        self.enqueue(("pod", metadata["namespace"], metadata["name"]), after_seconds=delay)

    def _report_node(self, name: str) -> None:
        node = self.registry.find(NODES, name)
        if node is None or name not in self._booted:
            return
        ready = self._failed.get(name, "True")
        conditions: list[Json] | None = entries(node["status"], "conditions")
        for kind in _PRESSURES:
            conditions = with_condition(conditions, _condition(kind, "False"), self.clock.now())
        conditions = with_condition(conditions, _condition("Ready", ready), self.clock.now())
        self.registry.patch(NODES, {"status": {"conditions": conditions}}, name, part="status")
        ours = {_NOT_READY, _UNREACHABLE}
        taints = [each for each in entries(node["spec"], "taints") if each["key"] not in ours]
        if ready != "True":
            key = _UNREACHABLE if ready == "Unknown" else _NOT_READY
            taints += [{"key": key, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        self.registry.patch(NODES, {"spec": {"taints": taints or None}}, name)
        for pod in self._pods.on(name):
            if ready == "True":
                self._expect_pod(pod)
            elif is_ready(pod):
                self._report_pod(pod, ready="False")

    def _run_pod(self, namespace: str, name: str) -> None:
        pod = self.registry.find(PODS, name, namespace)
        if pod is None:
            return
        node = pod["spec"].get("nodeName", "")
        if node not in self._booted or node in self._failed:
            return
        if "deletionTimestamp" in pod["metadata"]:
            self.registry.delete(PODS, name, namespace, grace_seconds=0)
        elif not is_ready(pod):
            self._report_pod(pod, ready="True")

    def _report_pod(self, pod: Json, *, ready: str) -> None:
        now, conditions = self.clock.now(), entries(pod["status"], "conditions")
        for kind in ("Initialized", "ContainersReady", "Ready"):
            state = "True" if kind == "Initialized" else ready
            conditions = with_condition(conditions, {"type": kind, "status": state}, now)
        status: Json = {"phase": "Running", "conditions": conditions}
        if "startTime" not in pod["status"]:
            started = render_time(now)
            status["startTime"] = started
            status["containerStatuses"] = [
                {
                    "name": each["name"], "image": each["image"], "ready": True, "started": True,
                    "restartCount": 0, "state": {"running": {"startedAt": started}},
                }
                for each in pod["spec"]["containers"]
            ]  # fmt: skip
        metadata = pod["metadata"]
        self.registry.patch(
            PODS, {"status": status}, metadata["name"], metadata["namespace"], part="status"
        )


def _condition(kind: str, state: str) -> Json:
    reasons = {"True": "KubeletReady", "False": "KubeletNotReady", "Unknown": "NodeStatusUnknown"}
    return {
        "type": kind,
        "status": state,
        "reason": reasons[state] if kind == "Ready" else f"KubeletHasNo{kind}",
    }
