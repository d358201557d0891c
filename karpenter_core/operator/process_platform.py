"""The clock, connections and threads that a process is wired to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from karpenter_core.provider.contract import ClusterFacts
from karpenter_core.tracing import NO_TRACER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from karpenter_core.clock import Clock
    from karpenter_core.controllers.planner import Planner
    from karpenter_core.controllers.reconciling.reconciler import IdSource
    from karpenter_core.kube.contact import ContactTimes
    from karpenter_core.kube.lease import ElectionTimes
    from karpenter_core.kube.transport import Transport
    from karpenter_core.kube.writer import WriteFaults
    from karpenter_core.operator.cluster_facts import ClusterFactsReader
    from karpenter_core.operator.dashboard_content import DashboardContent
    from karpenter_core.provider.host.executor import Executor
    from karpenter_core.tracing import Tracer

__all__ = ["ProcessPlatform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlatform:
    """Clock, ids, threads and connections of a process.

    `lease` is a connection of its own, so that nothing else can cost the lease; `workload` is given
    when pods and nodes live in another cluster than NodePools and NodeClaims.
    """

    clock: Clock
    new_id: IdSource
    executor: Executor
    planner: Planner
    background: Planner
    """The planner for work that may take long and blocks nothing else: disruption passes."""
    objects: Transport
    lease: Transport
    workload: Transport | None = None
    identity: str
    """The name of this process in the lease."""
    namespace: str = "kube-system"
    """Namespace of the lease."""
    cache_folder: Path
    cluster: ClusterFacts = field(default_factory=ClusterFacts)
    facts_reader: ClusterFactsReader | None = None
    """The reader that completes `cluster` while the process runs; None without one."""
    election: ElectionTimes | None = None
    contact: ContactTimes | None = None
    """The longest silence of a kind."""
    jitter: Callable[[], float] | None = None
    faults: WriteFaults | None = None
    tracer: Tracer = NO_TRACER
    dashboard: DashboardContent | None = None
    """Makes the documents of the dashboard; None if the program has none."""
    serves_http: bool = True
    """Whether metrics and probes are served; there are no sockets in simulated time."""
    owns_memory: bool = False
    """Whether the memory of the operating system's process is this controller's alone, so that it
    may be returned and tuned; in tests many controllers share one."""
