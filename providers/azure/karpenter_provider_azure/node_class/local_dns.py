"""Resolves whether the nodes of a NodeClass have LocalDNS.

The mode Preferred enables LocalDNS where nothing in the cluster speaks against it. Once enabled, it
stays enabled: a change would replace all nodes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import ObjectRead
from karpenter_core.provider.kit.node_class.parts import (
    condition_met,
    condition_unknown,
    condition_unmet,
)
from karpenter_provider_azure.api.local_dns import LocalDNSMode, LocalDNSState
from karpenter_provider_azure.images.families import (
    EffectiveFamily,
    ImageVariant,
    effective_family,
)
from karpenter_provider_azure.kubernetes_versions import parse_version
from karpenter_provider_azure.node_class.conditions import LOCAL_DNS_READY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.provider.contract import ObjectReader
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass

__all__ = ["CHECK_FAILED", "LOCAL_DNS_READS", "LocalDnsResolver"]

RETRY_INTERVAL: Final = timedelta(minutes=5)
CHECK_FAILED: Final = "CheckingClusterRequirementsFailed"
_READ_PERIOD: Final = RETRY_INTERVAL
"""NodeClasses are resolved as often."""
_SYSTEM: Final = "kube-system"
_OWN_POLICY: Final = (_SYSTEM, "konnectivity-agent")
"""A network policy that AKS creates in each cluster."""
_NETWORK_POLICIES: Final = ObjectRead(
    resource="networkpolicies", group="networking.k8s.io", limit=2, period=_READ_PERIOD
)
_FOREIGN_POLICIES: Final = (
    *(
        ObjectRead(resource=resource, group=group, version=version, limit=1, period=_READ_PERIOD)
        for resource, group, version in (
            ("ciliumnetworkpolicies", "cilium.io", "v2"),
            ("ciliumclusterwidenetworkpolicies", "cilium.io", "v2"),
            ("networkpolicies", "crd.projectcalico.org", "v1"),
            ("globalnetworkpolicies", "crd.projectcalico.org", "v1"),
        )
    ),
)
_NODE_LOCAL_DNS: Final = ObjectRead(
    resource="daemonsets",
    group="apps",
    namespace=_SYSTEM,
    name="node-local-dns",
    period=_READ_PERIOD,
)
LOCAL_DNS_READS: Final = (_NETWORK_POLICIES, *_FOREIGN_POLICIES, _NODE_LOCAL_DNS)
"""Objects that the mode Preferred depends on; declare them in `ProviderInfo.reads`."""
_FILTERING_PLUGINS: Final = frozenset({"calico", "cilium"})


@final
class LocalDnsResolver:
    """Resolves LocalDNS of NodeClasses; callable from any thread."""

    def __init__(
        self,
        read_objects: ObjectReader,
        *,
        network_plugin: str,
        network_policy: str,
        preferred_since: str,
    ) -> None:
        """Take settings; `preferred_since` is a version of Kubernetes."""
        self._read_objects: Final = read_objects
        self._network_plugin: Final = network_plugin
        self._network_policy: Final = network_policy
        self._preferred_since: Final = preferred_since

    def resolve(self, node_class: AKSNodeClass, version: Callable[[], str]) -> ResolutionPart:
        """Return the condition, and the state in the status.

        `version` returns the version of Kubernetes of new nodes.

        Raises:
            CloudProviderError: the version is not known yet.
        """
        match node_class.spec.local_dns_mode:
            case LocalDNSMode.REQUIRED:
                return _met(LocalDNSState.ENABLED)
            case LocalDNSMode.DISABLED:
                return _met(LocalDNSState.DISABLED)
            case LocalDNSMode.PREFERRED:
                return self._preferred_part(node_class, version)
            case mode:
                known = ", ".join(LocalDNSMode)
                message = f'spec.localDNS.mode "{mode}": unknown mode; the modes are {known}'
                return condition_unmet(LOCAL_DNS_READY, CHECK_FAILED, message)

    def _preferred_part(
        self, node_class: AKSNodeClass, version: Callable[[], str]
    ) -> ResolutionPart:
        if node_class.status.local_dns_state == LocalDNSState.ENABLED:
            return _met(LocalDNSState.ENABLED)
        cause = self._static_obstacle(node_class, version())
        try:
            cause = cause or self._conflict()
        except CloudProviderError as error:
            return condition_unknown(
                LOCAL_DNS_READY,
                f'spec.localDNS.mode "{LocalDNSMode.PREFERRED}": {error}',
                reason=CHECK_FAILED,
            )
        if cause:
            remark = f'spec.localDNS.mode "{LocalDNSMode.PREFERRED}": LocalDNS is disabled, {cause}'
            return _met(LocalDNSState.DISABLED, remark)
        return _met(LocalDNSState.ENABLED)

    def _static_obstacle(self, node_class: AKSNodeClass, version: str) -> str:
        """Return what speaks against LocalDNS without a look at the cluster; empty for nothing."""
        numbers, since = parse_version(version), parse_version(self._preferred_since)
        if numbers is None or since is None or numbers < since:
            return f"because Kubernetes {version} is older than {self._preferred_since}"
        if self._network_plugin == "none":
            return "because the cluster has no network plugin of AKS"
        spec = node_class.spec
        variant = ImageVariant(fips=spec.uses_fips, trusted_launch=spec.uses_trusted_launch)
        family = effective_family(spec.image_family, version, variant)
        if family is EffectiveFamily.UBUNTU_2004:
            return "because Ubuntu 20.04 does not support it"
        return ""

    def _conflict(self) -> str:
        """Return what in the cluster conflicts with LocalDNS; empty for nothing."""
        if self._network_policy.lower() in _FILTERING_PLUGINS:
            policies = self._read_objects(_NETWORK_POLICIES)
            if any(_identity(policy) != _OWN_POLICY for policy in policies):
                return "because the cluster has network policies"
            for read in _FOREIGN_POLICIES:
                if self._read_objects(read):
                    return f"because the cluster has {read}"
        if self._read_objects(_NODE_LOCAL_DNS):
            return f"because the cluster has the DaemonSet {_SYSTEM}/{_NODE_LOCAL_DNS.name}"
        return ""


def _identity(manifest: Mapping[str, object]) -> tuple[str, str]:
    metadata = cast("Mapping[str, object]", manifest.get("metadata") or {})
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _met(state: LocalDNSState, remark: str = "") -> ResolutionPart:
    return condition_met(
        LOCAL_DNS_READY,
        remark,
        status={"localDNSState": state.value},
        retry_after=RETRY_INTERVAL,
    )
