"""Reads the ACK cluster's network plug-in and Kubernetes version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.last_answer import LastAnswer
from karpenter_provider_alibabacloud.codes import ErrorClass
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of, refusal_behind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = [
    "CUSTOM_CLUSTER",
    "ClusterDetails",
    "ClusterReader",
    "Cni",
    "read_cluster",
]

CUSTOM: Final = "Custom"
"""The setting `cluster_type` of clusters that are none of ACK's."""
TTL: Final = timedelta(minutes=15)


class Cni(StrEnum):
    """The network plug-in, which gives pods their addresses."""

    TERWAY_ENIIP = "terway-eniip"
    """Each pod has an address of the vSwitch, many on one interface."""
    TERWAY_ENI = "terway-eni"
    """Each pod has an interface of its own."""
    FLANNEL = "Flannel"
    """Each node has a piece of the cluster's own network."""
    CUSTOM = "Custom"
    """Anything else: nothing is known of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDetails:
    """The facts of the cluster that the provider needs."""

    cni: Cni
    node_cidr_mask: int | None = None
    """Length of the prefix that each node's pods share; of Flannel only."""
    kubernetes_version: str = ""
    """As ACK writes it: `1.32.1-aliyun.1`; empty for a cluster that is none of ACK's."""


CUSTOM_CLUSTER: Final = ClusterDetails(cni=Cni.CUSTOM)


def read_cluster(answer: Mapping[str, object]) -> ClusterDetails:
    """Read what DescribeClusterDetail answers.

    The network is in `meta_data`, a text with JSON.

    Raises:
        ValueError: it cannot be read, or names no network.
    """
    meta = json.loads(str(answer.get("meta_data") or "{}"))
    info = cast("dict[str, object]", meta) if isinstance(meta, dict) else {}
    capabilities = info.get("Capabilities")
    network = (
        cast("dict[str, object]", capabilities).get("Network")
        if isinstance(capabilities, dict)
        else None
    )
    if not network:
        raise ValueError("meta_data has no Capabilities.Network")
    cni = _cni(str(network))
    mask = str(answer.get("node_cidr_mask", "")).lstrip("/")
    return ClusterDetails(
        cni=cni,
        node_cidr_mask=int(mask) if cni is Cni.FLANNEL and mask.isdecimal() else None,
        kubernetes_version=str(answer.get("current_version") or "").removeprefix("v"),
    )


def _cni(network: str) -> Cni:
    name = network.lower()
    if name == "flannel":
        return Cni.FLANNEL
    if name in {"terway-eni", "terway-eni-only"}:
        return Cni.TERWAY_ENI
    # Terway shares interfaces among pods unless it is configured not to.
    return Cni.TERWAY_ENIIP if name.startswith("terway") else Cni.CUSTOM


@final
class ClusterReader:
    """Reads the cluster; callable from any thread."""

    def __init__(
        self, clients: CloudClients, clock: Clock, *, cluster_id: str, cluster_type: str
    ) -> None:
        self._clients: Final = clients
        self._cluster_id: Final = cluster_id
        self._is_custom: Final = cluster_type == CUSTOM
        self._details: Final = LastAnswer(clock, TTL, self._fetched)

    @property
    def is_custom(self) -> bool:
        """Whether the cluster is none of ACK's."""
        return self._is_custom

    def details(self) -> ClusterDetails:
        """Return the cluster's details, those of earlier while they cannot be had.

        Of a cluster that is none of ACK's nothing is asked.

        Raises:
            CloudProviderError: they cannot be had, and never were.
        """
        return CUSTOM_CLUSTER if self._is_custom else self._details.get()

    def _fetched(self) -> ClusterDetails:
        try:
            with core_errors_of():
                answer = self._clients.ack.call(
                    "DescribeClusterDetail", {"ClusterId": self._cluster_id}
                )
        except CloudProviderError as error:
            failure = refusal_behind(error)
            if failure is None or failure.error_class is not ErrorClass.NOT_FOUND:
                raise
            raise CloudProviderError(
                f'--cluster-id: there is no cluster "{self._cluster_id}" in the region '
                f"{self._clients.region}: {error}"
            ) from failure
        try:
            return read_cluster(answer)
        except ValueError as error:
            raise CloudProviderError(
                f"cs:DescribeClusterDetail of cluster {self._cluster_id} cannot be read: {error}"
            ) from error
