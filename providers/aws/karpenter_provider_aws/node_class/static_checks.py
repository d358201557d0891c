"""Checks a NodeClass without calls: kubelet settings, user data, tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from karpenter_core.errors import BadInputError, CloudProviderError, NodeClassNotReadyError
from karpenter_provider_aws.families.bootstrap import BootstrapInput
from karpenter_provider_aws.families.family import user_data
from karpenter_provider_aws.instance_tags import restricted_tags
from karpenter_provider_aws.kubelet.checks import evaluation_finding, kubelet_finding
from karpenter_provider_aws.settings import NODE_CLASS_CEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.instance_type_info import InstanceTypeInfo
    from karpenter_provider_aws.settings import AwsSettings

__all__ = [
    "Check",
    "ConditionFinding",
    "NodeClassFinding",
    "early_checks",
    "late_checks",
    "tag_finding",
    "user_data_finding",
]

INVALID_USER_DATA: Final = "InvalidUserData"
_ANY_CIDR: Final = "10.0.0.0/16"


class ConditionFinding(Protocol):
    """A mistake: reason and message of a condition."""

    @property
    def reason(self) -> str:
        """One word in CamelCase."""
        ...

    @property
    def message(self) -> str:
        """Field, value and cause."""
        ...


Check: TypeAlias = "Callable[[EC2NodeClass], ConditionFinding | None]"
"""Finds what is wrong with a NodeClass, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassFinding:
    """A mistake in a NodeClass."""

    reason: str
    message: str


def early_checks(settings: AwsSettings) -> tuple[Check, ...]:
    """Return the checks that need nothing to be found first, in their order."""
    enabled = NODE_CLASS_CEL in settings.gates

    def kubelet(node_class: EC2NodeClass) -> ConditionFinding | None:
        return kubelet_finding(node_class, expressions_enabled=enabled)

    return kubelet, user_data_finding


def late_checks(
    settings: AwsSettings, infos: Callable[[], Iterable[InstanceTypeInfo]]
) -> tuple[Check, ...]:
    """Return the checks for a NodeClass of which all is found, in their order.

    `infos` are all types of the region; it raises CloudProviderError while none is known.
    """
    enabled = NODE_CLASS_CEL in settings.gates

    def expressions(node_class: EC2NodeClass) -> ConditionFinding | None:
        if not enabled or not node_class.spec.kubelet:
            return None
        type_infos = tuple(infos())
        if not type_infos:
            raise CloudProviderError("no instance types are known yet")
        return evaluation_finding(node_class, type_infos, reserved_enis=settings.reserved_enis)

    return expressions, tag_finding


def tag_finding(node_class: EC2NodeClass) -> NodeClassFinding | None:
    """Refuse tags by which resources are known as ours; an old CRD may have let them in."""
    restricted = restricted_tags(node_class.spec.tags)
    if not restricted:
        return None
    message = f"spec.tags: {', '.join(restricted)}: only Karpenter may set them"
    return NodeClassFinding(reason="TagValidationFailed", message=message)


def user_data_finding(node_class: EC2NodeClass) -> NodeClassFinding | None:
    """Refuse a text that cannot be merged with what bootstraps the node."""
    spec = node_class.spec
    if not spec.user_data:
        return None
    anything = BootstrapInput(
        cluster_name="cluster",
        cluster_endpoint="https://cluster",
        service_cidr=_ANY_CIDR,
        kubelet=spec.kubelet,
        instance_store_policy=spec.instance_store_policy,
        user_data=spec.user_data,
    )
    try:
        user_data(node_class.ami_family, anything)
    except BadInputError as error:
        return NodeClassFinding(reason=INVALID_USER_DATA, message=str(error))
    except NodeClassNotReadyError:
        return None  # says nothing of the user's text
    return None
