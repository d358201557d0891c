"""Checks the provider's access to Alibaba Cloud for `karpenter doctor`.

Each permission to read is tried out by a small request; any answer but "not permitted" shows that
the call is permitted. Calls that change something are not tried: launches are tried out for each
ECSNodeClass (its condition `ValidationSucceeded`), and a policy that goes by the tags of instances
refuses to delete or tag an instance that does not exist. ACK's script is requested, and the token
in it expires by itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.doctor import (
    AccessDoctor,
    DoctorCheck,
    error_finding,
    ok_finding,
    warning_finding,
)
from karpenter_provider_alibabacloud.discovery.call_errors import (
    core_errors_of,
    is_refusal,
    refusal_behind,
)
from karpenter_provider_alibabacloud.discovery.images import MANAGED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.provider.contract import Finding
    from karpenter_provider_alibabacloud.api_answers import ApiAnswer
    from karpenter_provider_alibabacloud.discovery.cluster import ClusterReader
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings

__all__ = ["ProviderDoctor"]

_PROBED_TYPE: Final = "ecs.g7.large"
"""Asked about; whether the region sells it does not matter."""
_ANY_VERSION: Final = "1.32.1-aliyun.1"
"""Of Kubernetes; that ACK may not know it any more does not matter."""
_NOT_PERMITTED: Final = ("Forbidden", "NoPermission", "StatusForbidden")
"""Beginnings of the codes that say who asks is known, and may not."""
_POLICY: Final = (
    "add it to the policy of the controller's role; docs/alibabacloud.md has a complete policy"
)
_REACH: Final = (
    "check that this host reaches the endpoints of Alibaba Cloud (proxy, --alibaba-cloud-network, "
    "DNS)"
)
_CREDENTIALS: Final = (
    "give the controller credentials: RRSA for its service account, a RAM role of its instance, or "
    "ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET"
)


@final
class ProviderDoctor:
    """Checks credentials, permissions and the cluster."""

    def __init__(
        self,
        clients: CloudClients,
        *,
        settings: AlibabaCloudSettings,
        cluster: ClusterReader,
        uses_reservations: bool,
    ) -> None:
        """`uses_reservations` is the feature gate ReservedCapacity."""
        self._clients: Final = clients
        self._settings: Final = settings
        self._cluster: Final = cluster
        self._uses_reservations: Final = uses_reservations

    def check(self) -> tuple[Finding, ...]:
        """Return what is found, in the order in which it should be mended; raises nothing."""
        doctor = AccessDoctor(policy=_POLICY, reach=_REACH, is_granted=is_refusal)
        first = DoctorCheck(run=self._check_identity, remedy=_REACH, setting="set REGION_ID")
        return doctor.examine(first, permissions=self._tries, checks=self._checks)

    def _checks(self) -> tuple[DoctorCheck, ...]:
        return (
            DoctorCheck(
                run=self._check_cluster,
                remedy="check --cluster-id and --region-id, or set --cluster-type=Custom",
            ),
            DoctorCheck(run=self._check_scaling, remedy=_REACH),
            DoctorCheck(run=self._check_interruptions, remedy=_REACH),
        )

    def _check_identity(self) -> Finding:
        """Make a first call, to see whether anybody answers, and whether who asks is known."""
        region, credential = self._clients.region, self._clients.credential
        try:
            with core_errors_of():
                self._clients.ecs.call("DescribeInstances", {"RegionId": region, "MaxResults": 10})
        except CloudProviderError as error:
            failure = refusal_behind(error)
            if failure is None:
                raise
            if isinstance(error, AuthError) and not failure.code.startswith(_NOT_PERMITTED):
                return error_finding(f"{error} (credentials: {credential})", _CREDENTIALS)
            if not is_refusal(error):
                return error_finding(str(error), "try again later")
        return ok_finding(f"credentials: {credential}, region {region}")

    def _check_cluster(self) -> Finding:
        if self._cluster.is_custom:
            return ok_finding(
                "the cluster is not an ACK cluster: NodeClasses need userData that joins it"
            )
        details = self._cluster.details()
        return ok_finding(
            f'cluster "{self._settings.cluster_id}": Kubernetes '
            f"{details.kubernetes_version or 'unknown'}, network {details.cni}"
        )

    def _check_scaling(self) -> tuple[Finding, ...]:
        """Warn of node pools that ACK scales by itself: both would answer the same pods."""
        if self._cluster.is_custom:
            return ()
        try:
            with core_errors_of():
                answer = self._clients.ack.call(
                    "DescribeClusterNodePools", {"ClusterId": self._settings.cluster_id}
                )
        except CloudProviderError:
            return ()  # the permission is tried out, too
        pools = cast("Sequence[ApiAnswer]", answer.get("nodepools") or ())
        names = sorted(
            str(_section(pool, "nodepool_info").get("name") or "")
            for pool in pools
            if _section(pool, "auto_scaling").get("enable")
        )
        if not names:
            return ()
        return (
            warning_finding(
                f"ACK's auto scaling adds nodes for the same pods in the node pools: {', '.join(names)}",
                "disable auto scaling of these node pools, or separate their pods by taints",
            ),
        )

    def _check_interruptions(self) -> tuple[Finding, ...]:
        if self._settings.interruption:
            return ()
        message = "interruptions are not polled: spot instances end before their pods are evicted"
        return (warning_finding(message, "set --interruption"),)

    def _tries(self) -> Mapping[str, Callable[[], object]]:
        """Return by permission the call that tries it out."""
        region = {"RegionId": self._clients.region}
        of_type = {**region, "InstanceType": _PROBED_TYPE}
        parameters_by_action: dict[str, Mapping[str, object]] = {
            "DescribeAvailableResource": {**of_type, "DestinationResource": "SystemDisk"},
            "DescribeImages": {**region, "PageSize": 1, "PageNumber": 1},
            "DescribeInstanceHistoryEvents": {**region, "MaxResults": 10},
            "DescribeInstanceTypes": {"InstanceTypes": [_PROBED_TYPE]},
            "DescribeInstances": {**region, "MaxResults": 10},
            "DescribePrice": {**of_type, "ResourceType": "instance", "PriceUnit": "Hour"},
            "DescribeSecurityGroups": {**region, "MaxResults": 10},
            "DescribeSpotAdvice": {**region, "InstanceTypes": [_PROBED_TYPE]},
            "DescribeSpotPriceHistory": {**of_type, "NetworkType": "vpc"},
        }
        if self._uses_reservations:
            parameters_by_action["DescribeCapacityReservations"] = {**region, "MaxResults": 10}
        tries: dict[str, Callable[[], object]] = {
            f"ecs:{action}": partial(self._clients.ecs.call, action, parameters)
            for action, parameters in parameters_by_action.items()
        }
        tries["vpc:DescribeVSwitches"] = lambda: self._clients.vpc.call(
            "DescribeVSwitches", {**region, "PageSize": 1}
        )
        if not self._cluster.is_custom:
            tries |= self._tries_of_ack()
        return {action: partial(_call, call) for action, call in tries.items()}

    def _tries_of_ack(self) -> Mapping[str, Callable[[], object]]:
        ack = self._clients.ack
        cluster = {"ClusterId": self._settings.cluster_id}
        release = {
            "Region": self._clients.region,
            "ClusterType": MANAGED,
            "KubernetesVersion": _ANY_VERSION,
        }
        return {
            "cs:DescribeClusterAttachScripts": lambda: ack.call(
                "DescribeClusterAttachScripts", {**cluster, "keep_instance_name": True}
            ),
            "cs:DescribeClusterNodePools": lambda: ack.call("DescribeClusterNodePools", cluster),
            "cs:DescribeKubernetesVersionMetadata": lambda: ack.call(
                "DescribeKubernetesVersionMetadata", release
            ),
        }


def _call(call: Callable[[], object]) -> None:
    with core_errors_of():
        call()


def _section(pool: ApiAnswer, name: str) -> ApiAnswer:
    return pool.get(name) or {}
