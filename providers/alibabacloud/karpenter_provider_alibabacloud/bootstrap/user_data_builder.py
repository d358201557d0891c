"""Builds a launch's user data for the cluster that its nodes join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClassRef
from karpenter_provider_alibabacloud.bootstrap.scripts import ScriptKey
from karpenter_provider_alibabacloud.bootstrap.user_data import (
    BootstrapInput,
    ack_user_data,
    custom_user_data,
)

if TYPE_CHECKING:
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.bootstrap.scripts import AttachScripts

__all__ = ["UserDataBuilder"]


@final
class UserDataBuilder:
    """Makes user data; callable from any thread."""

    def __init__(self, scripts: AttachScripts | None, *, cluster_id: str) -> None:
        """Take the scripts of an ACK cluster, or None for one that is none of ACK's."""
        self._scripts: Final = scripts
        self._cluster_id: Final = cluster_id

    def user_data(
        self,
        node_class: ECSNodeClass,
        node_claim: NodeClaim,
        *,
        capacity_type: str,
        architecture: str = "amd64",
        max_pods: int | None = None,
    ) -> str:
        """Return user data in base64; empty where there is nothing to run.

        `max_pods` is the kubelet's limit of pods for the instance type (`catalogue.capacity`).

        Raises:
            BadInputError: the user's text cannot be merged with ours, or is too large.
            CloudProviderError: ACK refused its script, or did not answer (`discovery.call_errors`).
        """
        spec = node_class.spec
        kubelet = spec.kubelet_configuration
        bootstrap = BootstrapInput(
            node_claim=node_claim,
            capacity_type=capacity_type,
            kubelet={} if kubelet is None else kubelet.as_set(),
            max_pods=max_pods,
            user_data=spec.user_data,
        )
        if self._scripts is None:
            return custom_user_data(bootstrap)
        script = self._scripts.script(
            ScriptKey(
                format_disk=spec.format_data_disk,
                node_pool_id=spec.node_pool_id,
                architecture=architecture,
            )
        )
        return ack_user_data(script, bootstrap, cluster_id=self._cluster_id)

    def trial(self, node_class: ECSNodeClass) -> str:
        """Return the user data of a claim without wishes, to see whether there can be any.

        Raises:
            BadInputError, CloudProviderError: as for `user_data`.
        """
        resource = node_class.resource
        ref = NodeClassRef(group=resource.group, kind=resource.kind, name=node_class.name)
        claim = NodeClaim(spec=NodeClaimSpec(node_class_ref=ref))
        return self.user_data(node_class, claim, capacity_type="on-demand")
