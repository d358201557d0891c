"""Shows ProvisioningRequests in `karpenter plan` and `explain pod`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.api.provisioning_request import ATOMIC_SCALE_UP, consumed_request
from karpenter_core.cli.document import offering
from karpenter_core.lifecycle.provisioning_request.gang_plan import judge_plan, partial_plan_steps
from karpenter_core.lifecycle.provisioning_request.notices import request_state
from karpenter_core.lifecycle.provisioning_request.parameters import is_ours, parse_parameters
from karpenter_core.scheduling.isolation import solve_isolated
from karpenter_core.state.bookings import bookings, request_pods
from karpenter_core.state.provisioning_input import build_provisioning_input

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.api.provisioning_request import ProvisioningRequest
    from karpenter_core.api.records import PodView
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.lifecycle.provisioning_request.gang_plan import GangPlan, PodSetsPlan
    from karpenter_core.scheduling.problem import SchedulingPlan

__all__ = ["consumer_message", "request_line", "requests_document"]

_WAITING = frozenset({"Pending", "Accepted"})


def requests_document(cluster: ClusterInput) -> list[JsonObject]:
    """Return state and places of each request that this controller serves, by `namespace/name`.

    A request that waits is planned for by itself, as if no other one waited.
    """
    booked = {
        booking.request.uid: {name: len(pods) for name, pods in booking.pods.items()}
        for booking in bookings(cluster.snapshot)
    }
    documents: list[JsonObject] = []
    for key, request in sorted(cluster.snapshot.provisioning_requests.items()):
        if not is_ours(request):
            continue
        state = request_state(request)
        documents.append(
            {
                "request": key,
                "class": request.spec.provisioning_class_name,
                "state": state,
                "pods": request.pod_count,
                "message": _last_message(request),
                "booked": booked.get(request.uid, {}),
                "plan": _plan(cluster, request) if state in _WAITING else None,
            }
        )
    return documents


def request_line(document: JsonMapping) -> str:
    """Return one request of that document as a line."""
    line = (
        f"ProvisioningRequest {document['request']}: {document['state']}, {document['pods']} pod(s)"
    )
    if document["booked"]:
        places = ", ".join(f"{name} ({count})" for name, count in document["booked"].items())
        line += f", booked on {places}"
    planned = document["plan"]
    if planned is None:
        return f"{line}: {document['message']}" if document["message"] else line
    if planned["problem"]:
        return f"{line}: {planned['problem']}"
    nodes = ", ".join(f"{name} ({count})" for name, count in planned["existing"].items())
    launched = ", ".join(
        f"{each['cheapest']['instanceType']} ({each['pods']})" for each in planned["launch"]
    )
    parts = [f"room on {nodes}"] if nodes else []
    parts += [f"to launch {launched}"] if launched else []
    return f"{line}: {'; '.join(parts)}"


def consumer_message(cluster: ClusterInput, pod: PodView) -> str:
    """Return what a pod that uses the capacity of a request waits for; empty for other pods."""
    name = consumed_request(pod.shape.annotations)
    if not name or not cluster.problem_settings.serves_requests:
        return ""
    key = f"{pod.namespace}/{name}"
    request = cluster.snapshot.provisioning_requests.get(key)
    buys = f"it uses the capacity of ProvisioningRequest {key}, so no node is launched for it alone"
    if request is None:
        return f"{buys}; that request does not exist"
    message = _last_message(request)
    state = request_state(request)
    return f"{buys}; the request is {state}{f': {message}' if message else ''}"


def _last_message(request: ProvisioningRequest) -> str:
    """Return the message of the condition that changed last."""
    dated = [item for item in request.status.conditions if item.last_transition_time is not None]
    latest = max(dated, key=lambda item: str(item.last_transition_time), default=None)
    return "" if latest is None else latest.message


def _plan(cluster: ClusterInput, request: ProvisioningRequest) -> JsonObject:
    parameters = parse_parameters(request)
    if isinstance(parameters, str):
        return {"problem": parameters, "existing": {}, "launch": []}
    gang = request_pods(cluster.snapshot, request)
    if gang is None:
        return {"problem": "a PodTemplate of it does not exist", "existing": {}, "launch": []}
    plan, verdict = _judged(cluster, request, gang)
    if verdict.problem:
        text = verdict.problem
        fitting = () if parameters.partial_check is None else _fitting(cluster, request, gang)
        if fitting:
            text += f"; existing nodes have the capacity of pod set(s) {', '.join(fitting)}"
        return {"problem": text, "existing": {}, "launch": []}
    return {
        "problem": "",
        "existing": {name: sum(counts.values()) for name, counts in verdict.places.items()},
        "launch": [
            {
                "nodePool": claim.pool,
                "pods": len(claim.pods),
                "instanceTypes": list(claim.instance_types),
                "cheapest": offering(claim.cheapest),
            }
            for claim in plan.claims
        ],
    }


def _judged(
    cluster: ClusterInput, request: ProvisioningRequest, gang: tuple[PodView, ...]
) -> tuple[SchedulingPlan, GangPlan]:
    is_atomic = request.spec.provisioning_class_name == ATOMIC_SCALE_UP
    asked = build_provisioning_input(
        cluster.snapshot,
        now=cluster.now,
        problem_settings=cluster.problem_settings,
        gang=gang,
        joins_attempts=is_atomic,
    )
    problem = asked.problem
    if not is_atomic:
        problem = replace(problem, pools=(), catalogues={})
    plan = solve_isolated(problem, cluster.options)
    return plan, judge_plan(gang, asked, plan)


def _fitting(
    cluster: ClusterInput, request: ProvisioningRequest, gang: tuple[PodView, ...]
) -> tuple[str, ...]:
    """Return the names of the pod sets that fit, if some do not."""
    steps = partial_plan_steps(gang)
    pods = next(steps)
    while True:
        try:
            pods = steps.send(_judged(cluster, request, pods)[1])
        except StopIteration as end:
            found: PodSetsPlan = end.value
            return tuple(
                request.spec.pod_sets[index].pod_template_ref.name for index in found.pod_sets
            )
