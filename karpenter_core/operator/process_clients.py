"""Clients of the process's API servers, each with its own request limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.kube.api import ClusterApis, KubeApi
from karpenter_core.kube.events import EVENT_BURST, EVENT_QPS
from karpenter_core.kube.rate_limits import AsyncTokenBucket

if TYPE_CHECKING:
    from karpenter_core.kube.metrics import KubeMetrics
    from karpenter_core.kube.server_clock import ServerClock
    from karpenter_core.kube.transport import Transport
    from karpenter_core.operator.process_platform import ProcessPlatform
    from karpenter_core.operator.settings import Settings

__all__ = ["ProcessClients"]


@final
class ProcessClients:
    """Makes clients of the cluster of NodeClaims, of the workload cluster, and of that of the lease."""

    def __init__(
        self,
        settings: Settings,
        platform: ProcessPlatform,
        *,
        metrics: KubeMetrics,
        server_clock: ServerClock,
        node_class_groups: frozenset[str],
    ) -> None:
        self._settings: Final = settings
        self._platform: Final = platform
        self._metrics: Final = metrics
        self._server_clock: Final = server_clock
        self._node_class_groups: Final = node_class_groups

    def for_objects(self) -> ClusterApis:
        """Return clients that may send as many requests a second as the settings say, each."""
        settings = self._settings
        return self._clients(rate=float(settings.kube_client_qps), burst=settings.kube_client_burst)

    def for_events(self) -> ClusterApis:
        """Return clients whose requests do not delay those of controllers."""
        return self._clients(rate=EVENT_QPS, burst=EVENT_BURST)

    def for_lease(self) -> KubeApi:
        """Return a client without a limit; renewals date the server's clock every few seconds."""
        is_elsewhere = bool(self._settings.leader_election_kubeconfig)
        return KubeApi(
            self._platform.lease,
            clock=self._platform.clock,
            metrics=self._metrics,
            server_clock=None if is_elsewhere else self._server_clock,
        )

    def _clients(self, *, rate: float, burst: int) -> ClusterApis:
        clock = self._platform.clock

        def api(transport: Transport, server_clock: ServerClock | None = None) -> KubeApi:
            return KubeApi(
                transport,
                clock=clock,
                limiter=AsyncTokenBucket(clock, rate=rate, burst=burst),
                metrics=self._metrics,
                server_clock=server_clock,
            )

        workload = None if self._platform.workload is None else api(self._platform.workload)
        objects = api(self._platform.objects, self._server_clock)
        return ClusterApis(objects, workload, node_class_groups=self._node_class_groups)
