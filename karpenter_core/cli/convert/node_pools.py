"""Converts Provisioners (v1alpha5) and NodePools of v1beta1 to v1.

The rules are those of Karpenter's migration guides for v1beta1 and v1, and defaults that changed
between the versions are written down, so that the NodePool behaves as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.errors import BadInputError
from karpenter_core.provider.contract.conversion import Conversion

if TYPE_CHECKING:
    from karpenter_core.provider.contract.conversion import ManifestDraft

__all__ = ["LABELS", "NodeClassKinds", "node_pool_conversions"]

_V1: Final = "karpenter.sh/v1"
_PROVISIONER: Final = "karpenter.sh/v1alpha5"
_V1BETA1: Final = "karpenter.sh/v1beta1"
_CLASS_NAME: Final = "spec.template.spec.nodeClassRef.name"

LABELS: Final = {
    "karpenter.sh/provisioner-name": "karpenter.sh/nodepool",
    "node.k8s.aws/capacity-type": "karpenter.sh/capacity-type",
    "node.kubernetes.io/lifecycle": "karpenter.sh/capacity-type",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Today's names of labels."""

_KUBELET_OF_TODAY: Final = frozenset(
    {
        "clusterDNS",
        "cpuCFSQuota",
        "evictionHard",
        "evictionMaxPodGracePeriod",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "imageGCHighThresholdPercent",
        "imageGCLowThresholdPercent",
        "kubeReserved",
        "maxPods",
        "podsPerCore",
        "systemReserved",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassKinds:
    """The kinds of NodeClasses of the installed providers.

    `successors` are groups and kinds by older kinds. `kubelet_fields` are the names that `spec.kubelet` of a
    kind has, by group and kind; None if its schema allows every name.
    """

    successors: Mapping[str, tuple[str, str]]
    kubelet_fields: Mapping[tuple[str, str], frozenset[str] | None] = field(
        default_factory=dict[tuple[str, str], "frozenset[str] | None"]
    )


def node_pool_conversions(kinds: NodeClassKinds) -> tuple[Conversion, ...]:
    """Return the conversions."""

    def provisioner(draft: ManifestDraft) -> None:
        _convert_provisioner(draft, kinds)

    def node_pool(draft: ManifestDraft) -> None:
        _convert_node_pool(draft, kinds)

    return (
        Conversion(
            kind=f"Provisioner ({_PROVISIONER})",
            accepts=lambda document: _is(document, _PROVISIONER, "Provisioner"),
            convert=provisioner,
            successors={},
        ),
        Conversion(
            kind=f"NodePool ({_V1BETA1})",
            accepts=lambda document: _is(document, _V1BETA1, "NodePool"),
            convert=node_pool,
            successors={},
        ),
        Conversion(
            kind="objects that a controller writes",
            accepts=_is_written_by_a_controller,
            convert=_leave_out_object,
            successors={},
        ),
    )


def _is(document: Mapping[str, object], api_version: str, kind: str) -> bool:
    return document.get("apiVersion") == api_version and document.get("kind") == kind


def _is_written_by_a_controller(document: Mapping[str, object]) -> bool:
    return (str(document.get("apiVersion")), str(document.get("kind"))) in {
        (_PROVISIONER, "Machine"),
        (_V1BETA1, "NodeClaim"),
    }


def _leave_out_object(draft: ManifestDraft) -> None:
    for key in draft.source:
        draft.leave_out(
            key,
            "the controller writes objects of this kind: let the API server convert those that exist, "
            "and remove the manifest",
        )


# -- Provisioner -----------------------------------------------------------------------------------


def _convert_provisioner(draft: ManifestDraft, kinds: NodeClassKinds) -> None:
    draft.become(api_version=_V1, kind="NodePool")
    for name in ("labels", "annotations"):
        draft.move(f"spec.{name}", f"spec.template.metadata.{name}")
    replaced = str(draft.get("spec.providerRef.kind") or "AWSNodeTemplate")
    node_class = kinds.successors.get(replaced)
    _leave_out_kubelet_fields(draft, "spec.kubeletConfiguration", node_class, kinds)
    _convert_class_of_provisioner(draft, kinds.successors)
    _move_requirements(draft, "spec.requirements")
    draft.move("spec.taints", "spec.template.spec.taints")
    draft.move("spec.startupTaints", "spec.template.spec.startupTaints")
    _convert_expiry(draft)
    _convert_consolidation(draft)
    draft.move("spec.limits.resources", "spec.limits")
    draft.keep("spec.limits")
    weight = draft.get("spec.weight")
    if weight == 0:
        draft.leave_out("spec.weight", "0 is the default; a NodePool's weight is at least 1")
    draft.keep("spec.weight")


def _convert_class_of_provisioner(
    draft: ManifestDraft, successors: Mapping[str, tuple[str, str]]
) -> None:
    if draft.get("spec.providerRef") is None:
        if draft.get("spec.provider") is None:
            draft.warn("the Provisioner names no NodeClass: set spec.template.spec.nodeClassRef")
        return
    kind = str(draft.get("spec.providerRef.kind") or "AWSNodeTemplate")
    group, new_kind = _successor(kind, successors)
    draft.leave_out("spec.providerRef.apiVersion", "a reference names the group of the NodeClass")
    draft.add("spec.template.spec.nodeClassRef.group", group, f"the NodeClass replaces {kind}")
    if draft.get("spec.providerRef.kind") is None:
        draft.add("spec.template.spec.nodeClassRef.kind", new_kind, f"it replaces {kind}")
    draft.move(
        "spec.providerRef.kind",
        "spec.template.spec.nodeClassRef.kind",
        value=new_kind,
        reason=f"{new_kind} replaces {kind}",
    )
    draft.move("spec.providerRef.name", _CLASS_NAME)
    _hand_over_kubelet(draft, "spec.kubeletConfiguration", group, new_kind)


def _successor(kind: str, successors: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    if kind not in successors:
        known = ", ".join(sorted(successors)) or "none"
        message = (
            f"no installed provider converts {kind} (kinds that can be converted: {known}): install "
            "the provider of its cloud"
        )
        raise BadInputError(message)
    return successors[kind]


def _leave_out_kubelet_fields(
    draft: ManifestDraft, path: str, node_class: tuple[str, str] | None, kinds: NodeClassKinds
) -> None:
    accepted: frozenset[str] | None = _KUBELET_OF_TODAY
    if node_class is not None:
        accepted = kinds.kubelet_fields.get(node_class, _KUBELET_OF_TODAY)
    kubelet = draft.get(path)
    for name in cast("Mapping[str, object]", kubelet) if isinstance(kubelet, Mapping) else ():
        if name == "containerRuntime":
            draft.leave_out(f"{path}.{name}", "containerd is the only runtime of today's images")
        elif accepted is not None and name not in accepted:
            kind = "the NodeClass" if node_class is None else node_class[1]
            draft.leave_out(f"{path}.{name}", f"{kind} has no kubelet setting of this name")


def _hand_over_kubelet(draft: ManifestDraft, path: str, group: str, kind: str) -> None:
    draft.hand_over(
        path,
        group=group,
        kind=kind,
        name_at=_CLASS_NAME,
        to="spec.kubelet",
        reason=f"kubelet settings belong to {kind}",
    )


def _move_requirements(draft: ManifestDraft, path: str) -> None:
    target = "spec.template.spec.requirements"
    old = draft.get(path)
    if old is None:
        draft.add(target, [], "the field is required")
        return
    new = _renamed_requirements(old)
    if new == old:
        draft.move(path, target)
    else:
        draft.move(path, target, value=new, reason="labels have other names today")


def _renamed_requirements(requirements: object) -> object:
    """Return requirements with today's names of labels."""
    if not isinstance(requirements, Sequence) or isinstance(requirements, str):
        return requirements
    return [
        _renamed(cast("Mapping[str, object]", each)) if isinstance(each, Mapping) else each
        for each in cast("Sequence[object]", requirements)
    ]


def _renamed(requirement: Mapping[str, object]) -> dict[str, object]:
    key = str(requirement.get("key"))
    values = requirement.get("values")
    renamed = {**requirement, "key": LABELS[key]} if key in LABELS else dict(requirement)
    if key == "node.kubernetes.io/lifecycle" and isinstance(values, list):
        words = {"normal": "on-demand", "ondemand": "on-demand", "Ec2Spot": "spot"}
        renamed["values"] = [words.get(str(each), each) for each in cast("list[object]", values)]
    return renamed


def _convert_expiry(draft: ManifestDraft) -> None:
    target = "spec.template.spec.expireAfter"
    seconds = draft.get("spec.ttlSecondsUntilExpired")
    if seconds is None:
        draft.add(
            target, "Never", "nodes of the Provisioner do not expire; the default is 720h now"
        )
    draft.move("spec.ttlSecondsUntilExpired", target, value=f"{seconds}s")


def _convert_consolidation(draft: ManifestDraft) -> None:
    policy, after = "spec.disruption.consolidationPolicy", "spec.disruption.consolidateAfter"
    seconds = draft.get("spec.ttlSecondsAfterEmpty")
    enabled = draft.get("spec.consolidation.enabled")
    if enabled is True and seconds is not None:
        raise BadInputError(
            "spec.consolidation.enabled and spec.ttlSecondsAfterEmpty exclude each other"
        )
    if enabled is True:
        draft.move("spec.consolidation.enabled", policy, value="WhenEmptyOrUnderutilized")
        draft.add(after, "0s", "consolidation of the Provisioner does not wait")
    else:
        draft.add(policy, "WhenEmpty", "consolidation is off")
        draft.leave_out("spec.consolidation.enabled", "consolidationPolicy has its meaning")
        if seconds is None:
            draft.add(after, "Never", "empty nodes of the Provisioner stay")
        draft.move("spec.ttlSecondsAfterEmpty", after, value=f"{seconds}s")


# -- NodePool of v1beta1 ---------------------------------------------------------------------------


def _convert_node_pool(draft: ManifestDraft, kinds: NodeClassKinds) -> None:
    template = "spec.template.spec"
    draft.become(api_version=_V1, kind="NodePool")
    draft.keep("spec.template.metadata")
    group, kind = _class_of_node_pool(draft, kinds.successors)
    _leave_out_kubelet_fields(draft, f"{template}.kubelet", (group, kind), kinds)
    _hand_over_kubelet(draft, f"{template}.kubelet", group, kind)
    _move_requirements(draft, f"{template}.requirements")
    draft.leave_out(f"{template}.resources", "requests of NodeClaims are not part of a NodePool")
    draft.keep(f"{template}.taints")
    draft.keep(f"{template}.startupTaints")
    draft.keep(f"{template}.terminationGracePeriod")
    draft.move("spec.disruption.expireAfter", f"{template}.expireAfter")
    policy = draft.get("spec.disruption.consolidationPolicy") or "WhenUnderutilized"
    after = "spec.disruption.consolidateAfter"
    if policy == "WhenUnderutilized":
        draft.move(
            "spec.disruption.consolidationPolicy",
            "spec.disruption.consolidationPolicy",
            value="WhenEmptyOrUnderutilized",
            reason="the policy has another name",
        )
        if draft.get(after) is None:
            draft.add(after, "0s", "the field is required; consolidation of v1beta1 does not wait")
    draft.keep("spec.disruption")
    draft.keep("spec.limits")
    draft.keep("spec.weight")


def _class_of_node_pool(
    draft: ManifestDraft, successors: Mapping[str, tuple[str, str]]
) -> tuple[str, str]:
    reference = "spec.template.spec.nodeClassRef"
    kind = draft.get(f"{reference}.kind")
    version = str(draft.get(f"{reference}.apiVersion") or "")
    group = draft.get(f"{reference}.group") or version.rpartition("/")[0]
    if not kind or not group:
        default = next(iter(sorted(set(successors.values()))), None)
        if default is None:
            raise BadInputError(
                "spec.template.spec.nodeClassRef names no kind, and no installed provider knows one"
            )
        group, kind = group or default[0], kind or default[1]
    new_group = f"{reference}.group"
    if draft.get(f"{reference}.apiVersion") is not None:
        draft.move(
            f"{reference}.apiVersion",
            new_group,
            value=group,
            reason="a reference names the group of the NodeClass",
        )
    elif draft.get(new_group) is None:
        draft.add(new_group, group, "the field is required")
    if draft.get(f"{reference}.kind") is None:
        draft.add(f"{reference}.kind", kind, "the field is required")
    draft.keep(reference)
    return str(group), str(kind)
