"""Converts EC2NodeClasses of v1beta1 to v1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.provider.contract.conversion import Conversion
from karpenter_provider_aws.conversion.managed_node_groups import MANAGED_NODE_GROUP_CONVERSIONS
from karpenter_provider_aws.conversion.node_templates import (
    NODE_TEMPLATE_CONVERSIONS,
    V1,
    alias_terms,
)
from karpenter_provider_aws.conversion.scaling_groups import SCALING_GROUP_CONVERSIONS
from karpenter_provider_aws.labels import GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.provider.contract.conversion import ManifestDraft

__all__ = ["CONVERSIONS"]

_V1BETA1: Final = f"{GROUP}/v1beta1"
_KIND: Final = "EC2NodeClass"
_KEPT: Final = (
    "amiSelectorTerms",
    "associatePublicIPAddress",
    "blockDeviceMappings",
    "context",
    "detailedMonitoring",
    "instanceProfile",
    "instanceStorePolicy",
    "metadataOptions",
    "role",
    "securityGroupSelectorTerms",
    "subnetSelectorTerms",
    "tags",
    "userData",
)


def _convert_node_class(draft: ManifestDraft) -> None:
    draft.become(api_version=V1, kind=_KIND)
    family = str(draft.get("spec.amiFamily") or "")
    if family == "Ubuntu":
        reason = "Ubuntu is no family any more; its images are bootstrapped as those of AL2"
        draft.move("spec.amiFamily", "spec.amiFamily", value="AL2", reason=reason)
        if draft.get("spec.amiSelectorTerms") is None:
            draft.warn("spec.amiSelectorTerms is needed: select the images of Ubuntu there")
    elif draft.get("spec.amiSelectorTerms") is None and (terms := alias_terms(family)):
        reason = "an alias selects the images of a family"
        draft.move("spec.amiFamily", "spec.amiSelectorTerms", value=terms, reason=reason)
    draft.keep("spec.amiFamily")
    for name in _KEPT:
        draft.keep(f"spec.{name}")
    if draft.get("spec.metadataOptions.httpPutResponseHopLimit") is None:
        draft.add(
            "spec.metadataOptions.httpPutResponseHopLimit",
            2,
            "2 is the default of v1beta1; that of v1 is 1",
        )


def _is_node_class(document: Mapping[str, object]) -> bool:
    return (document.get("apiVersion"), document.get("kind")) == (_V1BETA1, _KIND)


CONVERSIONS: Final = (
    *NODE_TEMPLATE_CONVERSIONS,
    Conversion(
        kind=f"{_KIND} ({_V1BETA1})",
        accepts=_is_node_class,
        convert=_convert_node_class,
        successors={},
    ),
    *SCALING_GROUP_CONVERSIONS,
    *MANAGED_NODE_GROUP_CONVERSIONS,
)
