"""Resolves a NodeClass's subnet, and its nodes' other network needs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.parts import condition_met, condition_unmet
from karpenter_provider_azure.arm.errors import ArmNotFoundError
from karpenter_provider_azure.network.cluster_network import SeveralSecurityGroupsError
from karpenter_provider_azure.network.subnets import subnet_problem
from karpenter_provider_azure.node_class.conditions import AZURE_ERRORS, SUBNETS_READY, is_refusal

if TYPE_CHECKING:
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.network.cluster_network import SecurityGroupReader, VnetGuidReader
    from karpenter_provider_azure.network.subnets import ClusterNetwork, SubnetReader

__all__ = [
    "SEVERAL_SECURITY_GROUPS",
    "SUBNET_INVALID",
    "SUBNET_NOT_FOUND",
    "SUBNET_UNKNOWN",
    "SubnetResolver",
]

RETRY_INTERVAL: Final = timedelta(minutes=3)
SUBNET_INVALID: Final = "SubnetIDInvalid"
SUBNET_NOT_FOUND: Final = "SubnetNotFound"
SUBNET_UNKNOWN: Final = "SubnetUnknownError"
SEVERAL_SECURITY_GROUPS: Final = "SeveralSecurityGroups"


@final
class SubnetResolver:
    """Resolves the subnets of NodeClasses; callable from any thread."""

    def __init__(
        self,
        reader: SubnetReader,
        *,
        guid: VnetGuidReader,
        security_groups: SecurityGroupReader,
        cluster: ClusterNetwork,
    ) -> None:
        self._reader: Final = reader
        self._guid: Final = guid
        self._security_groups: Final = security_groups
        self._cluster: Final = cluster

    def field(self, node_class: AKSNodeClass) -> str:
        """Return the field or setting that names the subnet, which messages begin with."""
        own = node_class.spec.vnet_subnet_id
        return "spec.vnetSubnetID" if own else "setting vnet-subnet-id"

    def resolve(self, node_class: AKSNodeClass) -> ResolutionPart:
        """Return the condition of the subnet.

        Raises:
            CloudProviderError: Azure did not answer.
        """
        field = self.field(node_class)
        subnet_id = node_class.spec.vnet_subnet_id or self._cluster.vnet_subnet_id
        problem = subnet_problem(subnet_id, self._cluster)
        if problem:
            return condition_unmet(SUBNETS_READY, SUBNET_INVALID, f"{field}: {problem}")
        try:
            self._reader.require(subnet_id)
            self._guid.current()
            self._security_groups.current()
        except SeveralSecurityGroupsError as error:
            return condition_unmet(SUBNETS_READY, SEVERAL_SECURITY_GROUPS, str(error))
        except CloudProviderError as error:
            if not is_refusal(error):
                raise
            is_missing = isinstance(error, ArmNotFoundError)
            return condition_unmet(
                SUBNETS_READY,
                SUBNET_NOT_FOUND if is_missing else SUBNET_UNKNOWN,
                f'{field} "{subnet_id}": {AZURE_ERRORS.stable_text(error)}',
            )
        return condition_met(SUBNETS_READY, retry_after=RETRY_INTERVAL)
