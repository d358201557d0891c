"""Clusters in ACK: details, node pools and the attach script."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_alibabacloud.account import to_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.images import Images
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["AckNodePool", "Cluster", "Clusters", "JoinToken"]

_NOT_FOUND: Final = 404
_TOKEN_HOURS: Final = 1
"""Validity of a token when the call names none."""
_ARCHITECTURES: Final = ("amd64", "arm", "arm64")


@dataclass(slots=True, kw_only=True, eq=False)
class AckNodePool:
    """A node pool of a cluster; instances need not be in any."""

    id: str
    name: str
    default: bool = False
    healthy_nodes: int = 0
    runtime: str = "containerd"
    runtime_version: str = "1.6.39"
    taints: Sequence[Mapping[str, str]] = ()
    auto_scaling: bool = False
    """Whether ACK adds and removes nodes of it by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinToken:
    """A token with which instances join, until it expires."""

    token: str
    cluster_id: str
    expires_at: datetime


@dataclass(slots=True, kw_only=True, eq=False)
class Cluster:
    """A cluster in ACK."""

    id: str
    name: str
    version: str = "1.32.1-aliyun.1"
    network: str = "terway-eniip"
    """`Capabilities.Network`: `terway-eniip`, `terway-eni`, `Flannel`."""
    node_cidr_mask: str = "25"
    """Of a cluster with Flannel; tells how many pods a node has addresses for."""
    vpc_id: str = ""
    vswitch_ids: Sequence[str] = ()
    security_group_id: str = ""
    runtime: str = "containerd"
    runtime_version: str = "1.6.39"
    script_runtime: tuple[str, str] = ("containerd", "1.6.39")
    """The runtime that the attach script names; ACK keeps that of a deleted default pool."""
    state: str = "running"
    kind: str = "ManagedKubernetes"
    node_pools: list[AckNodePool] = field(default_factory=list[AckNodePool])
    unreadable: bool = False
    """Whether `meta_data` is something that nobody can read."""


@final
class Clusters:
    """The clusters of an account."""

    def __init__(self, account: Account, images: Images) -> None:
        self._account: Final = account
        self._images: Final = images
        self._clusters: dict[str, Cluster] = {}
        self._tokens: dict[str, JoinToken] = {}

    def add(self, cluster: Cluster) -> Cluster:
        """Make a cluster."""
        self._clusters[cluster.id] = cluster
        return cluster

    def get(self, cluster_id: str) -> Cluster:
        """Return a cluster.

        Raises:
            CloudError: there is no such cluster.
        """
        cluster = self._clusters.get(cluster_id)
        if cluster is None:
            raise CloudError(
                "ErrorClusterNotFound", f"cluster {cluster_id} not found", status=_NOT_FOUND
            )
        return cluster

    def clear(self) -> None:
        """Forget all clusters, and every token."""
        self._clusters.clear()
        self._tokens.clear()

    def revoke_tokens(self) -> None:
        """Let no token that was given out be good any longer."""
        self._tokens.clear()

    def join(self, token: str, at: datetime) -> Cluster | None:
        """Return the cluster that a token lets an instance join at a time; None when it does not."""
        found = self._tokens.get(token)
        if found is None or at >= found.expires_at:
            return None
        return self._clusters.get(found.cluster_id)

    # Answers to API calls.

    def describe_detail(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeClusterDetail."""
        cluster = self.get(request.required("ClusterId"))
        facts = {
            "Addons": [{"name": cluster.network}],
            "Capabilities": {"Network": cluster.network, "IntelSGX": False},
            "MultiAZ": True,
            "Runtime": cluster.runtime,
            "RuntimeVersion": cluster.runtime_version,
            "KubernetesVersion": cluster.version,
        }
        made = to_seconds(self._account.clock() - timedelta(days=30))
        return {
            "cluster_id": cluster.id,
            "name": cluster.name,
            "cluster_type": cluster.kind,
            "cluster_spec": "ack.pro.small",
            "profile": "Default",
            "region_id": self._account.region,
            "state": cluster.state,
            "current_version": cluster.version,
            "init_version": cluster.version,
            "vpc_id": cluster.vpc_id,
            "vswitch_id": ",".join(cluster.vswitch_ids),
            "vswitch_ids": list(cluster.vswitch_ids),
            "security_group_id": cluster.security_group_id,
            "network_mode": "vpc",
            "proxy_mode": "ipvs",
            "service_cidr": "192.168.0.0/16",
            "subnet_cidr": "172.20.0.0/16" if cluster.network == "Flannel" else "",
            "container_cidr": "172.20.0.0/16" if cluster.network == "Flannel" else "",
            "node_cidr_mask": cluster.node_cidr_mask,
            "master_url": json.dumps({"intranet_api_server_endpoint": "https://10.0.0.250:6443"}),
            "meta_data": "no JSON" if cluster.unreadable else json.dumps(facts),
            "deletion_protection": False,
            "size": sum(each.healthy_nodes for each in cluster.node_pools),
            "created": made,
            "updated": made,
            "tags": [{"key": "ack.aliyun.com", "value": cluster.id}],
        }

    def describe_node_pools(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeClusterNodePools."""
        cluster = self.get(request.required("ClusterId"))
        return {"nodepools": [self._pool(each) for each in cluster.node_pools]}

    def _pool(self, pool: AckNodePool) -> Mapping[str, object]:
        return {
            "nodepool_info": {
                "nodepool_id": pool.id,
                "name": pool.name,
                "is_default": pool.default,
                "type": "ess",
                "region_id": self._account.region,
            },
            "kubernetes_config": {
                "runtime": pool.runtime,
                "runtime_version": pool.runtime_version,
                "taints": list(pool.taints),
                "labels": [],
            },
            "status": {
                "state": "active",
                "healthy_nodes": pool.healthy_nodes,
                "total_nodes": pool.healthy_nodes,
                "serving_nodes": pool.healthy_nodes,
                "failed_nodes": 0,
            },
            "auto_scaling": {"enable": pool.auto_scaling, "min_instances": 0, "max_instances": 0},
        }

    def describe_attach_scripts(self, request: RequestParameters) -> str:
        """Answer DescribeClusterAttachScripts: a line of shell, with a token of its own."""
        cluster = self.get(request.required("ClusterId"))
        pool_id = request.text("nodepool_id")
        if pool_id and pool_id not in {each.id for each in cluster.node_pools}:
            raise CloudError(
                "ErrorNodePoolNotFound", f"nodepool {pool_id} not found", status=_NOT_FOUND
            )
        architecture = request.choice("arch", _ARCHITECTURES, "amd64")
        token = self._new_token(cluster, request.integer("expired"))
        runtime, runtime_version = cluster.script_runtime
        host = f"aliacs-k8s-{self._account.region}.oss-{self._account.region}-internal.aliyuncs.com"
        script = (
            f"curl http://{host}/public/pkg/run/attach/{cluster.version}/{architecture}"
            "/attach_node.sh | bash -s --"
            f" --openapi-token {token} --cluster-id {cluster.id} --region {self._account.region}"
            " --endpoint 10.0.0.250:6443 --cluster-dns 192.168.0.10"
            f" --addon-names {cluster.network}"
            f" --runtime {runtime} --runtime-version {runtime_version}"
        )
        if request.flag("keep_instance_name", default=True):
            script += " --keep-instance-name true"
        if request.flag("format_disk"):
            script += " --auto-fdisk true"
        if pool_id:
            script += f" --nodepool-id {pool_id}"
        return f"{script}\r\n"

    def _new_token(self, cluster: Cluster, expires: int) -> str:
        now = self._account.clock()
        until = (
            datetime.fromtimestamp(expires, UTC) if expires else now + timedelta(hours=_TOKEN_HOURS)
        )
        if until <= now:
            raise CloudError("InvalidParameter", f"the token would expire at {to_seconds(until)}")
        digits = sha256(self._account.ids.new("token").encode()).hexdigest()
        token = JoinToken(
            token=f"{digits[:6]}.{digits[6:22]}", cluster_id=cluster.id, expires_at=until
        )
        self._tokens[token.token] = token
        return token.token

    def describe_versions(self, request: RequestParameters) -> Sequence[Mapping[str, object]]:
        """Answer DescribeKubernetesVersionMetadata: one item, of the version that is asked for."""
        request.required("Region")
        request.choice(
            "ClusterType", ("Kubernetes", "ManagedKubernetes", "ExternalKubernetes", "Edge")
        )
        clusters = list(self._clusters.values())
        version = request.text("KubernetesVersion") or (clusters[0].version if clusters else "")
        return [
            {
                "version": version,
                "capabilities": cast("Mapping[str, object]", {}),
                "meta_data": {"KubernetesVersion": version, "SubClass": "default"},
                "creatable": True,
                "upgradable_versions": [],
                "images": list(self._images.listed_by_ack()),
                "runtimes": [{"name": "containerd", "version": "1.6.39"}],
            }
        ]
