"""Makes the HTTP servers of a process, and the checks of its readiness."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from karpenter_core.operator.journal_page import PATH, decisions_page
from karpenter_core.operator.servers import FurtherServer, HttpServers, ReadinessCheck

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.kube.informers import Informers
    from karpenter_core.operator.crd_wait import CrdWaiter
    from karpenter_core.operator.dashboard.feed import DashboardFeed
    from karpenter_core.operator.metrics_access import AccessReviewer
    from karpenter_core.operator.process_platform import ProcessPlatform
    from karpenter_core.operator.serving_certificate import ServingCertificate
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.host.facade import Providers

__all__ = ["make_servers", "readiness_checks"]

OVERDUE_CALLS: Final = 3
"""So many calls of plug-ins that never came back make the process unready."""


def readiness_checks(
    *, informers: Informers, crds: CrdWaiter, providers: Providers, runtime: ControllerRuntime
) -> tuple[ReadinessCheck, ...]:
    """Return the checks under the names that `/readyz` shows."""

    def unsynced() -> str | None:
        waiting = [kind.plural for kind in informers.unsynced]
        return f"not listed yet: {', '.join(waiting)}" if waiting else None

    def stale() -> str | None:
        stale = [each for each in informers.stale() if each.seconds is not None]
        return f"not fresh: {', '.join(map(str, stale))}" if stale else None

    def overdue() -> str | None:
        calls = providers.overdue_calls()
        return (
            f"{calls} calls to providers exceed their time limit"
            if calls >= OVERDUE_CALLS
            else None
        )

    return (
        ReadinessCheck(name="manager", failure=unsynced),
        ReadinessCheck(name="freshness", failure=stale),
        ReadinessCheck(name="crd", failure=lambda: crds.problem),
        ReadinessCheck(name="provider", failure=overdue),
        ReadinessCheck(name="passes", failure=lambda: runtime.passes.problem),
    )


def make_servers(
    settings: Settings,
    platform: ProcessPlatform,
    *,
    registry: CollectorRegistry,
    runtime: ControllerRuntime,
    checks: tuple[ReadinessCheck, ...],
    dashboard: DashboardFeed | None,
) -> HttpServers:
    """Return the servers, which are not bound yet. `dashboard` None = no dashboard is served."""
    from karpenter_core.operator.profiling import profiling_routes, slow_profiling_routes

    is_profiled = settings.enable_profiling
    return HttpServers(
        registry=registry,
        checks=checks,
        address=settings.bind_address,
        metrics_address=settings.metrics_bind_address,
        probe_address=settings.health_probe_bind_address,
        certificate=_certificate(settings),
        reviewer=_access_reviewer(settings, platform),
        metrics_port=settings.metrics_port,
        probe_port=settings.health_probe_port,
        extra_routes=profiling_routes() if is_profiled else None,
        slow_routes=slow_profiling_routes() if is_profiled else None,
        json_routes={PATH: partial(decisions_page, runtime.journal)},
        dashboard=None if dashboard is None else _dashboard_server(settings, platform, dashboard),
    )


def _dashboard_server(
    settings: Settings, platform: ProcessPlatform, feed: DashboardFeed
) -> FurtherServer:
    from karpenter_core.operator.dashboard.server import DashboardServer

    address = settings.dashboard_bind_address
    server = DashboardServer(feed, address=address, reviewer=_access_reviewer(settings, platform))
    return FurtherServer(
        make_app=server.make_app,
        address=address,
        port=settings.dashboard_port,
        option="dashboard-port",
    )


def _certificate(settings: Settings) -> ServingCertificate | None:
    if not settings.metrics_tls_cert_file:
        return None
    from karpenter_core.operator.serving_certificate import ServingCertificate

    return ServingCertificate(settings.metrics_tls_cert_file, settings.metrics_tls_key_file)


def _access_reviewer(settings: Settings, platform: ProcessPlatform) -> AccessReviewer | None:
    if not settings.metrics_token_auth:
        return None
    from karpenter_core.operator.metrics_access import AccessReviewer

    # With a limit of its own: requests with unknown tokens delay no controller.
    return AccessReviewer.of(platform.objects, clock=platform.clock)
