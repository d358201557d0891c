"""Subresources of pods: binding to a node, and eviction within budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.kube.resources import POD_DISRUPTION_BUDGETS, PODS
from karpenter_core.sim import status
from karpenter_core.sim.fields import entries, labels_of, section
from karpenter_core.sim.registry import render_time
from karpenter_core.sim.selectors import matches_selector

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.sim.fields import Json
    from karpenter_core.sim.registry import Registry

__all__ = ["bind", "evict", "is_ready", "with_condition"]

_BUSY_RETRY_SECONDS: Final = 10  # upstream's suggestion while a budget is being recomputed
_BLOCKED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})


def is_ready(pod: Json) -> bool:
    """Tell whether a pod's Ready condition is true."""
    conditions = entries(pod["status"], "conditions")
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def with_condition(conditions: list[Json] | None, condition: Json, now: datetime) -> list[Json]:
    """Return conditions with one set; its transition time moves only when its status does."""
    others: list[Json] = []
    since = render_time(now)
    for each in conditions or []:
        if each["type"] != condition["type"]:
            others.append(each)
        elif each["status"] == condition["status"]:
            since = each.get("lastTransitionTime", since)
    return [*others, condition | {"lastTransitionTime": since}]


def bind(registry: Registry, binding: Json, name: str, namespace: str, *, now: datetime) -> Json:
    """Bind a pod to a node.

    Raises:
        StatusError: 404, or 409 when the pod is bound, gated or being deleted.
    """
    stored = registry.existing(PODS, name, namespace)
    pod = stored.obj
    why = ""
    if "deletionTimestamp" in pod["metadata"]:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise status.conflict(PODS, name, why)
    scheduled = {"type": "PodScheduled", "status": "True"}
    conditions = with_condition(pod["status"].get("conditions"), scheduled, now)
    registry.commit(
        stored,
        pod
        | {
            "spec": pod["spec"] | {"nodeName": binding["target"]["name"]},
            "status": _without_nomination(pod["status"]) | {"conditions": conditions},
        },
    )
    return status.success()


def _without_nomination(of_pod: Json) -> Json:
    """Clear `status.nominatedNodeName`, as binding does since 1.35."""
    return {key: value for key, value in of_pod.items() if key != "nominatedNodeName"}


def evict(registry: Registry, eviction: Json, name: str, namespace: str, *, now: datetime) -> Json:
    """Delete a pod if the budget that covers it allows.

    Raises:
        StatusError: 404, 409, 429 when the budget forbids it, 500 when two budgets cover it.
    """
    options = section(eviction, "deleteOptions")
    pod = registry.read(PODS, name, namespace)
    ignorable = pod["status"].get("phase") in _TERMINAL | {"Pending"}
    if not ignorable and "deletionTimestamp" not in pod["metadata"]:
        _spend_budget(registry, pod, namespace, now=now)
    _check_uid(pod, options)
    target = {
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }  # fmt: skip
    conditions = with_condition(pod["status"].get("conditions"), target, now)
    registry.patch(PODS, {"status": {"conditions": conditions}}, name, namespace, part="status")
    registry.delete(PODS, name, namespace, grace_seconds=options.get("gracePeriodSeconds"))
    return status.success()


def _check_uid(pod: Json, options: Json) -> None:
    required_uid = section(options, "preconditions").get("uid", "")
    if required_uid and required_uid != pod["metadata"]["uid"]:
        raise status.conflict(
            PODS,
            pod["metadata"]["name"],
            f"the UID in the precondition ({required_uid}) does not match the UID in record "
            f"({pod['metadata']['uid']}). The object might have been deleted and then recreated",
        )


def _spend_budget(registry: Registry, pod: Json, namespace: str, *, now: datetime) -> None:
    labels = labels_of(pod)
    covering = [
        budget
        for budget in registry.objects(POD_DISRUPTION_BUDGETS, namespace)
        if matches_selector(budget["spec"].get("selector"), labels)
    ]
    if not covering:
        return
    if len(covering) > 1:
        raise status.StatusError(
            500,
            "",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support.",
        )
    budget = covering[0]
    name, state = budget["metadata"]["name"], budget["status"]
    if not is_ready(pod):
        if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return
        if state["currentHealthy"] >= state["desiredHealthy"] > 0:
            return
    if state.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        raise _too_many(
            f"The disruption budget {name} is still being processed by the server.",
            retry_after_seconds=_BUSY_RETRY_SECONDS,
        )
    if state["disruptionsAllowed"] <= 0:
        raise _too_many(
            f"The disruption budget {name} needs {state['desiredHealthy']} healthy pods and has "
            f"{state['currentHealthy']} currently"
        )
    spent: JsonObject = {
        "disruptionsAllowed": state["disruptionsAllowed"] - 1,
        "disruptedPods": {pod["metadata"]["name"]: render_time(now)},
    }
    registry.patch(POD_DISRUPTION_BUDGETS, {"status": spent}, name, namespace, part="status")


def _too_many(message: str, *, retry_after_seconds: int = 0) -> status.StatusError:
    return status.StatusError(
        429,
        "TooManyRequests",
        _BLOCKED,
        details={"causes": [{"reason": "DisruptionBudget", "message": message}]},
        retry_after_seconds=retry_after_seconds,
    )
