"""Checks of a NodeClass that ask nobody: its kubelet settings, its user data, its tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from karpenter_core.errors import BadInputError, CloudProviderError, NodeClassNotReadyError
from karpenter_provider_aws.families.bootstrap import Bootstrap
from karpenter_provider_aws.families.family import user_data
from karpenter_provider_aws.instance_tags import restricted_tags
from karpenter_provider_aws.kubelet.checks import evaluation_problem, kubelet_problem
from karpenter_provider_aws.settings import NODE_CLASS_CEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.settings import AwsSettings
    from karpenter_provider_aws.type_facts import InstanceTypeInfo

__all__ = [
    "Check",
    "Complaint",
    "Problem",
    "early_checks",
    "late_checks",
    "tag_problem",
    "user_data_problem",
]

INVALID_USER_DATA: Final = "InvalidUserData"
_ANY_CIDR: Final = "10.0.0.0/16"


class Complaint(Protocol):
    """What is wrong: reason and message of a condition."""

    @property
    def reason(self) -> str:
        """One word in CamelCase."""
        ...

    @property
    def message(self) -> str:
        """Field, value and cause."""
        ...


Check: TypeAlias = "Callable[[EC2NodeClass], Complaint | None]"
"""Finds what is wrong with a NodeClass, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a NodeClass."""

    reason: str
    message: str


def early_checks(settings: AwsSettings) -> tuple[Check, ...]:
    """Return the checks that need nothing to be found first, in their order."""
    enabled = NODE_CLASS_CEL in settings.gates

    def kubelet(node_class: EC2NodeClass) -> Complaint | None:
        return kubelet_problem(node_class, expressions_enabled=enabled)

    return kubelet, user_data_problem


def late_checks(
    settings: AwsSettings, infos: Callable[[], Iterable[InstanceTypeInfo]]
) -> tuple[Check, ...]:
    """Return the checks for a NodeClass of which all is found, in their order.

    `infos` are all types of the region; it raises CloudProviderError while none is known.
    """
    enabled = NODE_CLASS_CEL in settings.gates

    def expressions(node_class: EC2NodeClass) -> Complaint | None:
        if not enabled or not node_class.spec.kubelet:
            return None
        known = tuple(infos())
        if not known:
            raise CloudProviderError("no instance types are known yet")
        return evaluation_problem(node_class, known, reserved_enis=settings.reserved_enis)

    return expressions, tag_problem


def tag_problem(node_class: EC2NodeClass) -> Problem | None:
    """Refuse tags by which resources are known as ours; an old CRD may have let them in."""
    taken = restricted_tags(node_class.spec.tags)
    if not taken:
        return None
    message = f"spec.tags: {', '.join(taken)}: set by Karpenter alone"
    return Problem(reason="TagValidationFailed", message=message)


def user_data_problem(node_class: EC2NodeClass) -> Problem | None:
    """Refuse a text that cannot be merged with what bootstraps the node."""
    spec = node_class.spec
    if not spec.user_data:
        return None
    anything = Bootstrap(
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
        return Problem(reason=INVALID_USER_DATA, message=str(error))
    except NodeClassNotReadyError:
        return None  # says nothing of the user's text
    return None
