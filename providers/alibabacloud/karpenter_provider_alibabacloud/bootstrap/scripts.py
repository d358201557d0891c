"""Fetches ACK's script that attaches an instance to the cluster.

The script names a container runtime, and ACK takes that of the default node pool even when the pool
is gone: docker, on clusters that have none any more. So the runtime that the node pools really use
replaces it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, cast, final

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.api_answers import ApiAnswer
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["AttachScripts", "ContainerRuntime", "ScriptKey", "pool_runtime", "with_runtime"]

TTL: Final = timedelta(hours=6)
TOKEN_LIFE: Final = TTL + timedelta(hours=1)
"""Requested validity of the token in a script: instances boot for a while after their launch."""
MOST_SCRIPT_BYTES: Final = 4096
"""ACK's scripts have less than a kilobyte; more is no script, and would be kept for hours."""
MISSED_REGISTRATIONS: Final = 3
"""After so many in a row the token is taken to have ended."""

_RUNTIME: Final = re.compile(r" --runtime +\S+ +--runtime-version +\S+")


class ScriptKey(NamedTuple):
    """The inputs of a script, beside the cluster."""

    format_disk: bool = False
    """Whether the last data disk is formatted, and gets containers and the kubelet's directory."""
    node_pool_id: str = ""
    """ACK's own node pool; empty for the default one."""
    architecture: str = "amd64"


class ContainerRuntime(NamedTuple):
    """The container runtime of nodes, as ACK's script names it."""

    name: str
    version: str


def pool_runtime(node_pools: Sequence[ApiAnswer], *, node_pool_id: str) -> ContainerRuntime | None:
    """Return the container runtime of ACK's node pools; None when none of them says.

    It is that of the pool with the id, else of the default pool, else of the pool with most healthy
    nodes.
    """

    def rank(pool: ApiAnswer) -> tuple[bool, bool, int]:
        info, status = _section(pool, "nodepool_info"), _section(pool, "status")
        is_meant = info.get("nodepool_id") == node_pool_id
        return is_meant, bool(info.get("is_default")), status.get("healthy_nodes") or 0

    for pool in sorted(node_pools, key=rank, reverse=True):
        config = _section(pool, "kubernetes_config")
        name, version = config.get("runtime"), config.get("runtime_version")
        if name and version:
            return ContainerRuntime(str(name), str(version))
    return None


def _section(pool: ApiAnswer, name: str) -> ApiAnswer:
    return pool.get(name) or {}


def with_runtime(script: str, runtime: ContainerRuntime | None) -> str:
    """Return the script for a container runtime; as it is when none is known, or it names none."""
    if runtime is None:
        return script
    runtime_arguments = f" --runtime {runtime.name} --runtime-version {runtime.version}"
    return _RUNTIME.sub(lambda _: runtime_arguments, script)


@final
class AttachScripts:
    """Fetches scripts and keeps them; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock, *, cluster_id: str) -> None:
        self._clients: Final = clients
        self._clock: Final = clock
        self._cluster_id: Final = cluster_id
        self._cache: Final[TtlCache[ScriptKey, str]] = TtlCache(clock, TTL)
        self._lock: Final = Lock()
        self._missed = 0
        self._log: FilteringBoundLogger = structlog.get_logger("alibabacloud.bootstrap")

    def script(self, key: ScriptKey) -> str:
        """Return the script.

        Raises:
            CloudProviderError: ACK refused or did not answer (`discovery.call_errors`).
        """
        cached_script = self._cache.get(key)
        if cached_script is None:
            cached_script = with_runtime(self._fetched(key), self._runtime(key))
            self._cache.put(key, cached_script)
        return cached_script

    def note_registered(self) -> None:
        """Record that an instance joined: its token was good."""
        with self._lock:
            self._missed = 0

    def note_unregistered(self) -> None:
        """Record that an instance did not join in time.

        After some in a row the scripts are fetched anew, once, as their tokens may have ended.
        """
        with self._lock:
            self._missed += 1
            if self._missed != MISSED_REGISTRATIONS:
                return
        for key in self._cache.items():
            self._cache.drop(key)
        self._log.warning("instances do not join the cluster; fetching ACK's script again")

    def _fetched(self, key: ScriptKey) -> str:
        expires = self._clock.now() + TOKEN_LIFE
        with core_errors_of():
            answer = self._clients.ack.call(
                "DescribeClusterAttachScripts",
                {
                    "ClusterId": self._cluster_id,
                    "arch": None if key.architecture == "amd64" else key.architecture,
                    "expired": int(expires.timestamp()),
                    "format_disk": key.format_disk,
                    "keep_instance_name": True,
                    "nodepool_id": key.node_pool_id or None,
                },
            )
        script = str(answer.get("body") or "").strip("\r\n")
        if not script:
            raise CloudProviderError(
                "cs:DescribeClusterAttachScripts has no script for cluster "
                f"{self._cluster_id} in its answer"
            )
        if (size := len(script.encode())) > MOST_SCRIPT_BYTES:
            raise CloudProviderError(
                f"cs:DescribeClusterAttachScripts answers with {size:,} bytes for cluster "
                f"{self._cluster_id}: no script has more than {MOST_SCRIPT_BYTES:,}"
            )
        return script

    def _runtime(self, key: ScriptKey) -> ContainerRuntime | None:
        try:
            with core_errors_of():
                answer = self._clients.ack.call(
                    "DescribeClusterNodePools", {"ClusterId": self._cluster_id}
                )
        except CloudProviderError as error:
            self._log.warning(
                "ACK's node pools cannot be read; its script keeps the container runtime it names",
                error=str(error),
            )
            return None
        pools = cast("Sequence[ApiAnswer]", answer.get("nodepools") or ())
        return pool_runtime(pools, node_pool_id=key.node_pool_id)
