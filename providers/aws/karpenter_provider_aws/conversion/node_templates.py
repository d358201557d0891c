"""Converts AWSNodeTemplates and Provisioners' AWS settings to EC2NodeClasses.

Defaults of v1alpha1 are written down where those of v1 are others. Source: Karpenter's API reference of
v1alpha1 and its migration guides for v1beta1 and v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.errors import BadInputError
from karpenter_core.provider.contract.conversion import Conversion
from karpenter_provider_aws.conversion.selectors import ami_terms, tag_terms
from karpenter_provider_aws.labels import GROUP

if TYPE_CHECKING:
    from karpenter_core.provider.contract.conversion import ManifestDraft

__all__ = ["NODE_TEMPLATE", "NODE_TEMPLATE_CONVERSIONS", "V1", "alias_terms"]

NODE_TEMPLATE: Final = "AWSNodeTemplate"
V1: Final = f"{GROUP}/v1"
_KIND: Final = "EC2NodeClass"
_ALIASES: Final = ("AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022")
_CATEGORY: Final = f"{GROUP}/instance-category"
_GENERATION: Final = f"{GROUP}/instance-generation"
_TYPE_LABELS: Final = frozenset(
    {
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        f"{GROUP}/instance-family",
        _CATEGORY,
        _GENERATION,
    }
)
_REQUIREMENTS: Final = "spec.template.spec.requirements"


def alias_terms(family: str) -> list[dict[str, str]]:
    """Return the terms that select a family's own images; none for a family without an alias."""
    return [{"alias": f"{family.lower()}@latest"}] if family in _ALIASES else []


def _convert_node_template(draft: ManifestDraft) -> None:
    draft.become(api_version=V1, kind=_KIND)
    _convert_settings(draft, "spec", draft)


def _complete_provisioner(draft: ManifestDraft) -> None:
    """Add what AWS's admission webhook added to Provisioners, and convert settings that stand in one."""
    if draft.get("spec.provider") is not None:
        _convert_inline_settings(draft)
    missing = _default_requirements(draft)
    if missing:
        reason = "v1alpha5 added it to every Provisioner that does not set it"
        draft.extend(_REQUIREMENTS, missing, reason)


def _default_requirements(draft: ManifestDraft) -> list[dict[str, object]]:
    """Return the requirements that v1alpha5 added: Linux, amd64, on-demand, families c, m and r."""
    requirements = draft.get("spec.requirements")
    keys = {
        str(cast("Mapping[str, object]", each).get("key"))
        for each in (cast("list[object]", requirements) if isinstance(requirements, list) else ())
        if isinstance(each, Mapping)
    }
    defaults: list[tuple[set[str], str, str, list[str]]] = [
        ({"kubernetes.io/os", "beta.kubernetes.io/os"}, "kubernetes.io/os", "In", ["linux"]),
        ({"kubernetes.io/arch", "beta.kubernetes.io/arch"}, "kubernetes.io/arch", "In", ["amd64"]),
        (
            {
                "karpenter.sh/capacity-type",
                "node.k8s.aws/capacity-type",
                "node.kubernetes.io/lifecycle",
            },
            "karpenter.sh/capacity-type",
            "In",
            ["on-demand"],
        ),
        (set(_TYPE_LABELS), _CATEGORY, "In", ["c", "m", "r"]),
        (set(_TYPE_LABELS), _GENERATION, "Gt", ["2"]),
    ]
    return [
        {"key": key, "operator": operator, "values": values}
        for alike, key, operator, values in defaults
        if not keys & alike
    ]


def _convert_inline_settings(draft: ManifestDraft) -> None:
    metadata = cast("Mapping[str, object]", draft.source.get("metadata") or {})
    name = str(metadata.get("name") or "default")
    node_class = draft.new_manifest(api_version=V1, kind=_KIND, name=name)
    draft.add("spec.template.spec.nodeClassRef", {"group": GROUP, "kind": _KIND, "name": name},
              "settings of instances are an object of their own")  # fmt: skip
    for key in ("apiVersion", "kind"):
        draft.leave_out(f"spec.provider.{key}", "settings of instances are an object of their own")
    _convert_settings(draft, "spec.provider", node_class)
    draft.hand_over(
        "spec.kubeletConfiguration",
        group=GROUP,
        kind=_KIND,
        name_at="spec.template.spec.nodeClassRef.name",
        to="spec.kubelet",
        reason=f"kubelet settings belong to {_KIND}",
    )


def _convert_settings(draft: ManifestDraft, path: str, node_class: ManifestDraft) -> None:
    """Convert the settings of instances below a path."""
    if draft.get(f"{path}.launchTemplate") is not None:
        raise BadInputError(
            f"{path}.launchTemplate: launch templates of users are not supported since v1beta1; write "
            "their settings into the AWSNodeTemplate first"
        )
    _convert_images(draft, path, node_class)
    for old, new in (
        ("subnetSelector", "subnetSelectorTerms"),
        ("securityGroupSelector", "securityGroupSelectorTerms"),
    ):
        selector = draft.get(f"{path}.{old}")
        if selector is None:
            draft.warn(f"{path}.{old} is not set: {_KIND} needs spec.{new}")
            continue
        draft.move(
            f"{path}.{old}",
            f"spec.{new}",
            value=tag_terms(selector, field=f"{path}.{old}"),
            reason="a selector is a list of terms",
            into=node_class,
        )
    if draft.get(f"{path}.instanceProfile") is None:
        draft.warn(
            f"{path}.instanceProfile is not set, the setting aws.defaultInstanceProfile does not exist any "
            f"more: set spec.role or spec.instanceProfile of the {_KIND}"
        )
    _convert_metadata_options(draft, path, node_class)
    _move_block_devices(draft, path, node_class)
    draft.move(f"{path}.associatePublicIpAddress", "spec.associatePublicIPAddress", into=node_class)
    for name in (
        "instanceProfile",
        "userData",
        "tags",
        "context",
        "detailedMonitoring",
        "associatePublicIPAddress",
    ):
        draft.move(f"{path}.{name}", f"spec.{name}", into=node_class)


def _convert_images(draft: ManifestDraft, path: str, node_class: ManifestDraft) -> None:
    family = str(draft.get(f"{path}.amiFamily") or "AL2")
    selector = draft.get(f"{path}.amiSelector")
    target = "spec.amiSelectorTerms"
    if selector is not None:
        draft.move(
            f"{path}.amiSelector",
            target,
            value=ami_terms(selector, field=f"{path}.amiSelector"),
            reason="a selector is a list of terms",
            into=node_class,
        )
        if draft.get(f"{path}.amiFamily") is None:
            node_class.add("spec.amiFamily", family, "AL2 is the default of v1alpha1")
        elif family == "Ubuntu":
            draft.move(
                f"{path}.amiFamily",
                "spec.amiFamily",
                value="AL2",
                reason="Ubuntu is no family any more; its images are bootstrapped as those of AL2",
                into=node_class,
            )
        draft.move(f"{path}.amiFamily", "spec.amiFamily", into=node_class)
    elif terms := alias_terms(family):
        reason = "an alias selects the images of a family"
        if draft.get(f"{path}.amiFamily") is None:
            node_class.add(target, terms, f"AL2 is the default of v1alpha1; {reason}")
        draft.move(f"{path}.amiFamily", target, value=terms, reason=reason, into=node_class)
    else:
        reason = f"{family} has no alias: select its images by spec.amiSelectorTerms, amiFamily AL2"
        draft.leave_out(f"{path}.amiFamily", reason)
        draft.warn(f"{path}.amiFamily: {reason}")


def _convert_metadata_options(draft: ManifestDraft, path: str, node_class: ManifestDraft) -> None:
    target = "spec.metadataOptions"
    if draft.get(f"{path}.metadataOptions") is None:
        node_class.add(
            f"{target}.httpPutResponseHopLimit", 2, "2 is the default of v1alpha1; that of v1 is 1"
        )
        return
    draft.move(f"{path}.metadataOptions", target, into=node_class)
    if draft.get(f"{path}.metadataOptions.httpTokens") is None:
        reason = "EC2's default, which v1alpha1 left to EC2; that of v1 is required"
        node_class.add(f"{target}.httpTokens", "optional", reason)


def _move_block_devices(draft: ManifestDraft, path: str, node_class: ManifestDraft) -> None:
    mappings = draft.get(f"{path}.blockDeviceMappings")
    if not isinstance(mappings, list):
        return
    old = cast("list[object]", mappings)
    new = [_without_virtual_name(each) for each in old]
    if new != old:
        draft.warn(
            f"{path}.blockDeviceMappings: virtualName is left out, instance stores have no name"
        )
    draft.move(
        f"{path}.blockDeviceMappings", "spec.blockDeviceMappings", value=new, into=node_class
    )


def _without_virtual_name(device: object) -> object:
    if not isinstance(device, Mapping):
        return device
    fields = cast("Mapping[str, object]", device)
    return {key: value for key, value in fields.items() if key != "virtualName"}


def _is_node_template(document: Mapping[str, object]) -> bool:
    return (document.get("apiVersion"), document.get("kind")) == (
        f"{GROUP}/v1alpha1",
        NODE_TEMPLATE,
    )


def _is_provisioner_of_aws(document: Mapping[str, object]) -> bool:
    spec = document.get("spec")
    if document.get("apiVersion") != "karpenter.sh/v1alpha5" or not isinstance(spec, Mapping):
        return False
    reference = cast("Mapping[str, object]", spec).get("providerRef")
    kind = (
        cast("Mapping[str, object]", reference).get("kind")
        if isinstance(reference, Mapping)
        else ""
    )
    return document.get("kind") == "Provisioner" and (kind or NODE_TEMPLATE) == NODE_TEMPLATE


NODE_TEMPLATE_CONVERSIONS: Final = (
    Conversion(
        kind=f"{NODE_TEMPLATE} ({GROUP}/v1alpha1)",
        accepts=_is_node_template,
        convert=_convert_node_template,
        successors={NODE_TEMPLATE: (GROUP, _KIND)},
    ),
    Conversion(
        kind="Provisioner (karpenter.sh/v1alpha5), defaults and settings of AWS",
        accepts=_is_provisioner_of_aws,
        convert=_complete_provisioner,
        successors={},
    ),
)
