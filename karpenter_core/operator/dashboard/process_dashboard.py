"""Connects the dashboard to a process's state, journal and Events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import SettingsError
from karpenter_core.operator.dashboard.decision_news import DecisionNews
from karpenter_core.operator.dashboard.feed import DashboardFeed, DashboardSources
from karpenter_core.operator.dashboard.pod_reasons import PodReasons
from karpenter_core.operator.dashboard_content import ClusterMoment
from karpenter_core.operator.wiring import provisioning_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.api.notices import Notice
    from karpenter_core.controllers.provisioning.provisioner import ProvisioningOptions
    from karpenter_core.operator.dashboard_content import Role
    from karpenter_core.operator.wiring import ControllerDependencies

__all__ = ["ProcessDashboard"]


@final
class ProcessDashboard:
    """The dashboard of one process."""

    def __init__(
        self,
        parts: ControllerDependencies,
        *,
        role: Callable[[], Role],
        leader: Callable[[], str],
        problems: Callable[[], tuple[str, ...]],
        publish: Callable[[Notice], None],
    ) -> None:
        """`problems` are failed checks of readiness; `publish` is where Events go on to.

        Raises:
            SettingsError: the program has no contents for a dashboard.
        """
        content = parts.platform.dashboard
        if content is None:
            raise SettingsError("dashboard-port: this program has no dashboard")
        content.load()
        self._parts: Final = parts
        self._role: Final = role
        self._leader: Final = leader
        self._problems: Final = problems
        self._publish: Final = publish
        self._reasons: Final = PodReasons()
        self._options: ProvisioningOptions | None = None
        self.feed: Final = DashboardFeed(
            content,
            DashboardSources(
                take_moment=self._take_moment,
                journal=DecisionNews(parts.runtime.journal),
                reasons=self._reasons,
                clock=parts.platform.clock,
                version_prefix=parts.runtime.new_id(),
                count_cpu=self._count_cpu,
            ),
        )

    async def run(self) -> None:
        """Keep the documents fresh until cancelled."""
        await self.feed.run()

    def publish(self, notice: Notice) -> None:
        """Note an Event, and publish it."""
        self._reasons.observe(notice)
        self._publish(notice)

    def _count_cpu(self, work: str, seconds: float) -> None:
        self._parts.runtime.metrics.dashboard_cpu.labels(work=work).inc(seconds)

    def _take_moment(self) -> ClusterMoment:
        parts, settings = self._parts, self._parts.settings
        if self._options is None:
            self._options = provisioning_options(parts)
        return ClusterMoment(
            snapshot=parts.cluster_state.snapshot(),
            now=parts.runtime.clock.now(),
            role=self._role(),
            leader=self._leader(),
            cluster_name=settings.cluster_name,
            solve=self._options.solve,
            problem_settings=self._options.problem_settings,
            spot_to_spot=settings.feature_gates.spot_to_spot_consolidation,
            static_capacity=settings.feature_gates.static_capacity,
            is_paused=settings.pause_disruption,
            problems=self._problems(),
            reasons=self._reasons.messages(),
        )
