"""Built-in kinds of the embedded server: their defaults and validation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.kube import resources as kinds
from karpenter_core.kube.resources import ResourceKind
from karpenter_core.sim.fields import Json, entries, labels_of, section
from karpenter_core.sim.selectors import matches_selector
from karpenter_core.sim.status import FieldIssue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BUILT_IN", "ServedKind", "metadata_issues"]

_CONFIG_MAPS: Final = ResourceKind("", "v1", "configmaps", "ConfigMap", namespaced=True)
_SECRETS: Final = ResourceKind("", "v1", "secrets", "Secret", namespaced=True)
_PRIORITY_CLASSES: Final = ResourceKind(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_QUALIFIED_NAME: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_MAX_NAME_LENGTH: Final = 253  # of a DNS subdomain
_METADATA_FIELDS: Final = frozenset({"metadata.name", "metadata.namespace"})
_NOT_READY_TAINT: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_TOLERATION_SECONDS: Final = 300  # upstream default of the DefaultTolerationSeconds admission


def _unchanged(obj: Json, _old: Json | None) -> Json:
    return obj


def _no_issues(_obj: Json, _old: Json | None) -> Iterator[FieldIssue]:
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedKind:
    """A kind as the server serves it."""

    kind: ResourceKind
    status: bool = False
    """Whether status is a subresource of its own, closed to writes of the object."""
    status_on_create: bool = False
    generation: bool = False
    unconditional_update: bool = True
    """Whether PUT may leave the resourceVersion out."""
    scale: tuple[str, str] | None = None
    """The paths of desired and actual replicas."""
    fields: frozenset[str] = _METADATA_FIELDS
    """The fields that a fieldSelector may name."""
    custom: bool = False
    stored_version: str = ""
    """The version in which objects are stored, if it is another one."""
    warning: str = ""
    """Sent with each answer; not for the stored version."""
    short_names: tuple[str, ...] = ()
    prepare: Callable[[Json, Json | None], Json] = _unchanged
    """Fill in defaults, given the object (owned by the callee) and its former version."""
    issues: Callable[[Json, Json | None], Iterator[FieldIssue]] = _no_issues


def metadata_issues(kind: ResourceKind, metadata: Json) -> Iterator[FieldIssue]:
    """Return the errors of a name, of labels or of finalizers."""
    name = metadata.get("name", "")
    if not name:
        yield FieldIssue("metadata.name", "Required value: name or generateName is required")
    elif (
        not _SUBDOMAIN.fullmatch(name)
        or len(name) > _MAX_NAME_LENGTH
        or (kind == kinds.NAMESPACES and "." in name)
    ):
        yield FieldIssue(
            "metadata.name",
            f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case '
            "alphanumeric characters, '-' or '.'",
        )
    for key, value in section(metadata, "labels").items():
        if not _QUALIFIED_NAME.fullmatch(key):
            yield FieldIssue("metadata.labels", f'Invalid value: "{key}": not a qualified name')
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            yield FieldIssue("metadata.labels", f"Invalid value: {value!r}: not a label value")
    for finalizer in metadata.get("finalizers") or ():
        if not _QUALIFIED_NAME.fullmatch(finalizer):
            yield FieldIssue(
                "metadata.finalizers", f'Invalid value: "{finalizer}": not a qualified name'
            )


# Pods


def _prepare_pod(pod: Json, old: Json | None) -> Json:
    if old is not None:
        return pod
    _default_pod_spec(pod.setdefault("spec", {}))
    spec = pod["spec"]
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(each.get("key", "") in {"", key} for each in tolerations):
            tolerations.append({
                "key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": _TOLERATION_SECONDS,
            })  # fmt: skip
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}
    return pod


def _default_pod_spec(spec: Json) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        resources = container.setdefault("resources", {})
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **resources.get("requests", {})}
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")
            if spec.get("hostNetwork"):
                port.setdefault("hostPort", port.get("containerPort"))


def _qos_class(spec: Json) -> str:
    containers = (*spec.get("containers", ()), *spec.get("initContainers", ()))
    resources: list[Json] = [each.get("resources", {}) for each in containers]
    if not any(each.get("requests") or each.get("limits") for each in resources):
        return "BestEffort"
    for each in resources:
        limits: Json = each.get("limits", {})
        if not {"cpu", "memory"} <= limits.keys():
            return "Burstable"
        if any(limits[name] != each["requests"].get(name) for name in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"


_MUTABLE_POD_FIELDS: Final = frozenset(
    {"activeDeadlineSeconds", "schedulingGates", "terminationGracePeriodSeconds", "tolerations"}
)


def _pod_issues(pod: Json, old: Json | None) -> Iterator[FieldIssue]:
    spec = section(pod, "spec")
    if not spec.get("containers"):
        yield FieldIssue("spec.containers", "Required value")
    for index, container in enumerate(entries(spec, "containers")):
        for name in ("name", "image"):
            if not container.get(name):
                yield FieldIssue(f"spec.containers[{index}].{name}", "Required value")
    if old is not None and _frozen_pod_spec(spec) != _frozen_pod_spec(old["spec"]):
        yield FieldIssue(
            "spec",
            "Forbidden: pod updates may not change fields other than image, "
            f"{', '.join(sorted(_MUTABLE_POD_FIELDS))}",
        )
    if old is not None:
        nominated = section(pod, "status").get("nominatedNodeName", "")
        before = section(old, "status").get("nominatedNodeName", "")
        if old["spec"].get("nodeName") and nominated and nominated != before:
            yield FieldIssue(
                "status.nominatedNodeName",
                "Forbidden: may not be set on pods that are already bound to a node",
            )
        kept = entries(spec, "tolerations")
        if any(each not in kept for each in entries(old["spec"], "tolerations")):
            yield FieldIssue(
                "spec.tolerations", "Forbidden: existing toleration can not be modified"
            )


def _frozen_pod_spec(spec: Json) -> Json:
    frozen = {key: value for key, value in spec.items() if key not in _MUTABLE_POD_FIELDS}
    for key in ("containers", "initContainers"):
        if key in frozen:
            frozen[key] = [{k: v for k, v in each.items() if k != "image"} for each in frozen[key]]
    return frozen


# Nodes


def _prepare_node(node: Json, old: Json | None) -> Json:
    node.setdefault("spec", {})
    if old is None:
        taints = node["spec"].setdefault("taints", [])
        if not any(each.get("key") == _NOT_READY_TAINT["key"] for each in taints):
            taints.append(dict(_NOT_READY_TAINT))
        status = node.setdefault("status", {})
        if "capacity" in status:
            status.setdefault("allocatable", dict(status["capacity"]))
    if not node["spec"].get("taints"):  # an empty list is not stored
        node["spec"] = {key: value for key, value in node["spec"].items() if key != "taints"}
    return node


def _node_issues(node: Json, old: Json | None) -> Iterator[FieldIssue]:
    seen = set[tuple[str, str]]()
    for index, taint in enumerate(entries(node["spec"], "taints")):
        place = f"spec.taints[{index}]"
        identity = (taint.get("key", ""), taint.get("effect", ""))
        if identity[1] not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
            yield FieldIssue(
                f"{place}.effect",
                f'Unsupported value: "{identity[1]}": supported values: '
                '"NoSchedule", "PreferNoSchedule", "NoExecute"',
            )
        if not _QUALIFIED_NAME.fullmatch(identity[0]):
            yield FieldIssue(
                f"{place}.key", f'Invalid value: "{identity[0]}": not a qualified name'
            )
        if identity in seen:
            yield FieldIssue(f"{place}", f"Duplicate value: {identity[0]}:{identity[1]}")
        seen.add(identity)
    former = (old or {}).get("spec", {}).get("providerID", "")
    if former and node["spec"].get("providerID", "") != former:
        yield FieldIssue(
            "spec.providerID",
            'Forbidden: node updates may not change providerID except from "" to valid',
        )


# Workloads and budgets


def _prepare_workload(obj: Json, old: Json | None) -> Json:
    spec = obj.setdefault("spec", {})
    if obj.get("kind") != "DaemonSet":
        spec.setdefault("replicas", 1)
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    _default_pod_spec(template.setdefault("spec", {}))
    if obj.get("kind") == "Deployment":
        spec.setdefault("strategy", {"type": "RollingUpdate"})
        if spec["strategy"].get("type", "RollingUpdate") == "RollingUpdate":
            rolling = section(spec["strategy"], "rollingUpdate")
            spec["strategy"] = {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"} | rolling,
            }
    if old is None:
        obj["status"] = {"replicas": 0} if obj.get("kind") == "ReplicaSet" else {}
    return obj


def _prepare_pod_template(obj: Json, _old: Json | None) -> Json:
    template = obj.setdefault("template", {})
    template.setdefault("metadata", {})
    _default_pod_spec(template.setdefault("spec", {}))
    return obj


def _workload_issues(obj: Json, old: Json | None) -> Iterator[FieldIssue]:
    spec = obj["spec"]
    selector = spec.get("selector")
    if not selector:
        yield FieldIssue("spec.selector", "Required value")
    elif not matches_selector(selector, labels_of(spec["template"])):
        labels = labels_of(spec["template"])
        yield FieldIssue(
            "spec.template.metadata.labels",
            f"Invalid value: {labels!r}: `selector` does not match template `labels`",
        )
    if old is not None and selector != old["spec"].get("selector"):
        yield FieldIssue("spec.selector", f"Invalid value: {selector!r}: field is immutable")
    if not isinstance(spec.get("replicas", 0), int) or spec.get("replicas", 0) < 0:
        yield FieldIssue(
            "spec.replicas",
            f"Invalid value: {spec['replicas']}: must be greater than or equal to 0",
        )
    if not spec["template"]["spec"].get("containers"):
        yield FieldIssue("spec.template.spec.containers", "Required value")


def _prepare_budget(budget: Json, old: Json | None) -> Json:
    budget.setdefault("spec", {})
    if old is None:
        zeros = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        budget["status"] = dict.fromkeys(zeros, 0)
    return budget


def _budget_issues(budget: Json, _old: Json | None) -> Iterator[FieldIssue]:
    if "minAvailable" in budget["spec"] and "maxUnavailable" in budget["spec"]:
        yield FieldIssue(
            "spec", "Invalid value: minAvailable and maxUnavailable cannot be both set"
        )


def _prepare_namespace(namespace: Json, old: Json | None) -> Json:
    if old is None:
        labels = namespace["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")
        namespace["spec"] = {"finalizers": ["kubernetes"]}
        namespace["status"] = {"phase": "Active"}
    return namespace


_POD_FIELDS: Final = frozenset({
    "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
    "status.phase", "status.podIP", "status.nominatedNodeName",
})  # fmt: skip
_EVENT_FIELDS: Final = frozenset(
    {"reason", "type", "source", "reportingComponent"}
    | {f"involvedObject.{each}" for each in ("kind", "name", "namespace", "uid", "fieldPath")}
)
_SCALE: Final = (".spec.replicas", ".status.replicas")


def _workload(kind: ResourceKind, *short_names: str, scale: bool = True) -> ServedKind:
    return ServedKind(
        kind=kind,
        status=True,
        generation=True,
        scale=_SCALE if scale else None,
        short_names=short_names,
        prepare=_prepare_workload,
        issues=_workload_issues,
    )


BUILT_IN: Final = (
    ServedKind(
        kind=kinds.PODS, status=True, generation=True, fields=_METADATA_FIELDS | _POD_FIELDS,
        short_names=("po",), prepare=_prepare_pod, issues=_pod_issues,
    ),
    ServedKind(
        kind=kinds.NODES, status=True, status_on_create=True, short_names=("no",),
        fields=_METADATA_FIELDS | {"spec.unschedulable"}, prepare=_prepare_node,
        issues=_node_issues,
    ),
    ServedKind(
        kind=kinds.NAMESPACES, status=True, fields=_METADATA_FIELDS | {"status.phase"},
        short_names=("ns",), prepare=_prepare_namespace,
    ),
    ServedKind(kind=kinds.EVENTS, fields=_METADATA_FIELDS | _EVENT_FIELDS, short_names=("ev",)),
    ServedKind(kind=_CONFIG_MAPS, short_names=("cm",)),
    ServedKind(kind=_SECRETS),
    ServedKind(kind=kinds.SERVICES, status=True, short_names=("svc",)),
    ServedKind(
        kind=kinds.REPLICATION_CONTROLLERS, status=True, generation=True, short_names=("rc",)
    ),
    ServedKind(kind=_PRIORITY_CLASSES, short_names=("pc",)),
    ServedKind(kind=kinds.PERSISTENT_VOLUMES, status=True, short_names=("pv",)),
    ServedKind(kind=kinds.PERSISTENT_VOLUME_CLAIMS, status=True, short_names=("pvc",)),
    ServedKind(kind=kinds.STORAGE_CLASSES, short_names=("sc",)),
    ServedKind(kind=kinds.CSI_NODES),
    ServedKind(kind=kinds.VOLUME_ATTACHMENTS, status=True),
    ServedKind(kind=kinds.RESOURCE_CLAIMS, status=True),
    ServedKind(kind=kinds.RESOURCE_CLAIM_TEMPLATES),
    ServedKind(
        kind=kinds.RESOURCE_SLICES,
        fields=_METADATA_FIELDS | {"spec.nodeName", "spec.driver"},
        generation=True,
    ),
    ServedKind(kind=kinds.DEVICE_CLASSES, generation=True),
    ServedKind(kind=kinds.LEASES, unconditional_update=False),
    ServedKind(
        kind=kinds.POD_DISRUPTION_BUDGETS, status=True, generation=True, short_names=("pdb",),
        prepare=_prepare_budget, issues=_budget_issues,
    ),
    ServedKind(kind=kinds.POD_TEMPLATES, generation=True, prepare=_prepare_pod_template),
    _workload(kinds.DEPLOYMENTS, "deploy"),
    _workload(kinds.REPLICA_SETS, "rs"),
    _workload(kinds.STATEFUL_SETS, "sts"),
    _workload(kinds.DAEMON_SETS, "ds", scale=False),
)  # fmt: skip
