"""The cluster in EKS, and its zonal shifts."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_aws.protocol import AwsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_simulated_aws.account import Account

__all__ = ["Cluster", "Clusters", "ZonalShifts"]

_NOT_FOUND: Final = 404


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A cluster in EKS."""

    name: str
    version: str = "1.34"
    endpoint: str = "https://0123456789ABCDEF0123456789ABCDEF.gr7.us-east-1.eks.amazonaws.com"
    ca_bundle: str = b64encode(
        b"-----BEGIN CERTIFICATE-----\nc2ltdWxhdGVk\n-----END CERTIFICATE-----\n"
    ).decode()
    """In base64."""
    service_ipv4_cidr: str = "10.100.0.0/16"
    service_ipv6_cidr: str = ""
    """For a cluster of IPv6; then there is no CIDR of IPv4."""


@final
class Clusters:
    """The clusters of an account."""

    def __init__(self, account: Account) -> None:
        self._account: Final = account
        self._clusters: dict[str, Cluster] = {}

    def add(self, cluster: Cluster) -> Cluster:
        """Make a cluster."""
        self._clusters[cluster.name] = cluster
        return cluster

    def clear(self) -> None:
        """Forget all clusters."""
        self._clusters.clear()

    def arn(self, name: str) -> str:
        """Return the ARN of a cluster."""
        return self._account.arn("eks", f"cluster/{name}")

    def describe(self, request: Mapping[str, str]) -> Mapping[str, object]:
        """Answer DescribeCluster."""
        cluster = self._clusters.get(request["name"])
        if cluster is None:
            raise AwsError(
                "ResourceNotFoundException",
                f"No cluster found for name: {request['name']}.",
                status=_NOT_FOUND,
            )
        network: dict[str, str] = {"ipFamily": "ipv6" if cluster.service_ipv6_cidr else "ipv4"}
        if cluster.service_ipv6_cidr:
            network["serviceIpv6Cidr"] = cluster.service_ipv6_cidr
        else:
            network["serviceIpv4Cidr"] = cluster.service_ipv4_cidr
        return {
            "cluster": {
                "name": cluster.name,
                "arn": self.arn(cluster.name),
                "version": cluster.version,
                "endpoint": cluster.endpoint,
                "status": "ACTIVE",
                "platformVersion": "eks.1",
                "certificateAuthority": {"data": cluster.ca_bundle},
                "kubernetesNetworkConfig": network,
                "tags": {},
            }
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _ZonalShift:
    zone_id: str
    starts_at: datetime
    expires_at: datetime
    applied: bool


@final
class ZonalShifts:
    """Zonal shifts of the resources that are registered for them."""

    def __init__(self, account: Account) -> None:
        self._account: Final = account
        self._shifts: dict[str, list[_ZonalShift]] = {}

    def register(self, arn: str) -> None:
        """Register a resource; without that AWS does not know it."""
        self._shifts.setdefault(arn, [])

    def shift(
        self,
        arn: str,
        zone_id: str,
        *,
        expires_at: datetime,
        applied: bool = True,
    ) -> None:
        """Shift traffic of a resource away from a zone."""
        now = self._account.clock()
        self._shifts[arn].append(
            _ZonalShift(zone_id=zone_id, starts_at=now, expires_at=expires_at, applied=applied)
        )

    def cancel(self, arn: str, zone_id: str) -> None:
        """Let traffic of a resource go to a zone again."""
        self._shifts[arn] = [each for each in self._shifts[arn] if each.zone_id != zone_id]

    def clear(self) -> None:
        """Forget all resources and shifts."""
        self._shifts.clear()

    def get_managed_resource(self, request: Mapping[str, str]) -> Mapping[str, object]:
        """Answer GetManagedResource."""
        arn = request["resourceIdentifier"]
        shifts = self._shifts.get(arn)
        if shifts is None:
            raise AwsError(
                "ResourceNotFoundException",
                f"The resource {arn} is not managed.",
                status=_NOT_FOUND,
            )
        return {
            "arn": arn,
            "name": arn.rpartition("/")[2],
            "appliedWeights": {each.zone_id: 0.0 if each.applied else 1.0 for each in shifts},
            "autoshifts": [],
            "zonalShifts": [
                {
                    "appliedStatus": "APPLIED" if each.applied else "NOT_APPLIED",
                    "zonalShiftId": self._account.ids.named("shift", each.zone_id),
                    "resourceIdentifier": arn,
                    "awayFrom": each.zone_id,
                    "startTime": each.starts_at,
                    "expiryTime": each.expires_at,
                    "comment": "simulated",
                }
                for each in shifts
            ],
            "zonalAutoshiftStatus": "DISABLED",
        }
