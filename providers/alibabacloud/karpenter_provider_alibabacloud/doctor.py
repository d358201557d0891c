"""Checks the provider's access to Alibaba Cloud for `karpenter doctor`.

Each permission to read is tried out by a small request; any answer but "not permitted" shows that
the call is permitted. Calls that change something are not tried: launches are tried out for each
ECSNodeClass (its condition `ValidationSucceeded`), and a policy that goes by the tags of instances
refuses to delete or tag an instance that does not exist. ACK's script is requested, and the token
in it expires by itself.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    SettingsError,
    ThrottledError,
)
from karpenter_core.provider.contract import Finding, Severity
from karpenter_provider_alibabacloud.discovery.call_errors import (
    core_errors_of,
    is_refusal,
    refusal_behind,
)
from karpenter_provider_alibabacloud.discovery.images import MANAGED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_provider_alibabacloud.api_answers import ApiAnswer
    from karpenter_provider_alibabacloud.discovery.cluster import ClusterReader
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings

__all__ = ["ProviderDoctor"]

_AT_ONCE: Final = 8
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
        uses_reservations: bool = True,
    ) -> None:
        """`uses_reservations` is the feature gate ReservedCapacity."""
        self._clients: Final = clients
        self._settings: Final = settings
        self._cluster: Final = cluster
        self._uses_reservations: Final = uses_reservations

    def check(self) -> tuple[Finding, ...]:
        """Return what is found, in the order in which it should be mended; raises nothing."""
        try:
            region = self._clients.region
        except SettingsError as error:
            return (_error(str(error), "set REGION_ID"),)
        who = self._check_identity(region)
        if who.severity is Severity.ERROR:
            # Nothing else would be answered; each call would only wait for its time limit.
            return (who,)
        tries = self._tries()
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="alibabacloud-doctor") as pool:
            tried = [pool.submit(_try_call, action, call) for action, call in tries.items()]
            cluster = pool.submit(self._check_cluster)
            scaled = pool.submit(self._check_scaling)
            problems = [
                problem for problem in (each.result() for each in tried) if problem is not None
            ]
            rest = [*cluster.result(), *scaled.result(), *self._check_interruptions()]
        if not problems:
            problems = [_ok(f"all of {len(tries)} permissions that can be tested are granted")]
        return (who, *problems, *rest)

    def _check_identity(self, region: str) -> Finding:
        """Make a first call, to see whether anybody answers, and whether who asks is known."""
        credential = self._clients.credential
        try:
            with core_errors_of():
                self._clients.ecs.call("DescribeInstances", {"RegionId": region, "MaxResults": 10})
        except CloudProviderError as error:
            failure = refusal_behind(error)
            if failure is None:
                return _error(str(error), _REACH)
            if isinstance(error, AuthError) and not failure.code.startswith(_NOT_PERMITTED):
                return _error(f"{error} (credentials: {credential})", _CREDENTIALS)
            if not is_refusal(error):
                return _error(str(error), "try again later")
        return _ok(f"credentials: {credential}, region {region}")

    def _check_cluster(self) -> tuple[Finding, ...]:
        if self._cluster.is_custom:
            return (
                _ok("the cluster is not an ACK cluster: NodeClasses need userData that joins it"),
            )
        cluster_id = self._settings.cluster_id
        try:
            details = self._cluster.details()
        except AuthError as error:
            return (_error(str(error), _POLICY),)
        except CloudProviderError as error:
            remedy = "check --cluster-id and --region-id, or set --cluster-type=Custom"
            return (_error(str(error), remedy),)
        return (
            _ok(
                f'cluster "{cluster_id}": Kubernetes {details.kubernetes_version or "unknown"}, '
                f"network {details.cni}"
            ),
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
            Finding(
                severity=Severity.WARNING,
                message=f"ACK's auto scaling adds nodes for the same pods in the node pools: {', '.join(names)}",
                remedy="disable auto scaling of these node pools, or separate their pods by taints",
            ),
        )

    def _check_interruptions(self) -> tuple[Finding, ...]:
        if self._settings.interruption:
            return ()
        message = "interruptions are not polled: spot instances end before their pods are evicted"
        return (Finding(severity=Severity.WARNING, message=message, remedy="set --interruption"),)

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
        return tries if self._cluster.is_custom else {**tries, **self._tries_of_ack()}

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


def _try_call(action: str, call: Callable[[], object]) -> Finding | None:
    """Make a call; return what is wrong, or None when the permission is there."""
    try:
        with core_errors_of():
            call()
    except AuthError as error:
        return _error(str(error), f"{action} is not permitted: {_POLICY}")
    except ThrottledError as error:
        return Finding(severity=Severity.WARNING, message=str(error), remedy="try again later")
    except CloudProviderError as error:
        # Any other refusal is about what was asked for: that one may ask is known.
        return None if is_refusal(error) else _error(str(error), _REACH)
    return None


def _section(pool: ApiAnswer, name: str) -> ApiAnswer:
    return pool.get(name) or {}


def _ok(message: str) -> Finding:
    return Finding(severity=Severity.OK, message=message)


def _error(message: str, remedy: str) -> Finding:
    return Finding(severity=Severity.ERROR, message=message, remedy=remedy)
