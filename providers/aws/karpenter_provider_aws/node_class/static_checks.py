"""Checks a NodeClass without dry runs: network, kubelet, user data, tags.

The network is the cluster's service network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from karpenter_core.errors import BadInputError, CloudProviderError, NodeClassNotReadyError
from karpenter_core.provider.kit.node_class.findings import NodeClassFinding
from karpenter_provider_aws.api.families import AmiFamily
from karpenter_provider_aws.discovery.call_errors import is_refusal
from karpenter_provider_aws.families.bootstrap import BootstrapInput
from karpenter_provider_aws.families.family import user_data
from karpenter_provider_aws.instance_tags import restricted_tags
from karpenter_provider_aws.kubelet.checks import evaluation_finding, kubelet_finding
from karpenter_provider_aws.node_class.conditions import stable_text
from karpenter_provider_aws.settings import NODE_CLASS_CEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from karpenter_core.provider.kit.node_class.findings import ConditionFinding
    from karpenter_core.provider.kit.node_class.validation import NodeClassCheck
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
    from karpenter_provider_aws.instance_type_info import InstanceTypeInfo
    from karpenter_provider_aws.settings import AwsSettings

__all__ = [
    "early_checks",
    "late_checks",
    "service_network_check",
    "tag_finding",
    "user_data_finding",
]

INVALID_USER_DATA: Final = "InvalidUserData"
_ANY_CIDR: Final = "10.0.0.0/16"

Check: TypeAlias = "NodeClassCheck[EC2NodeClass]"


def service_network_check(network: ServiceNetwork) -> Check:
    """Return the check that the CIDR of services is known where nodes need it.

    It raises CloudProviderError if EKS does not answer.
    """

    def finding(node_class: EC2NodeClass) -> NodeClassFinding | None:
        if node_class.ami_family is not AmiFamily.AL2023:
            return None
        try:
            cidr = network.resolve()
        except CloudProviderError as error:
            if not is_refusal(error):
                raise
            said = stable_text(error)
        else:
            if cidr:
                return None
            said = "eks:DescribeCluster tells none"
        message = f"the CIDR of the cluster's services, which AL2023 needs, is not known: {said}"
        return NodeClassFinding(reason="ClusterCIDRResolutionFailed", message=message)

    return finding


def early_checks(settings: AwsSettings, network: ServiceNetwork) -> tuple[Check, ...]:
    """Return the checks that need nothing to be found first, in their order."""
    enabled = NODE_CLASS_CEL in settings.gates

    def kubelet(node_class: EC2NodeClass) -> ConditionFinding | None:
        return kubelet_finding(node_class, expressions_enabled=enabled)

    return service_network_check(network), kubelet, user_data_finding


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
        pass  # says nothing of the user's text
    return None
