"""Starts the provider, and builds its parts when first used.

Settings are read at the start. A part that needs the region, and so perhaps a call, is built when
the first hook needs it: a cloud that is down must not keep the core from starting.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import timedelta
from importlib.metadata import version
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import SettingsError
from karpenter_core.provider.contract import Finding, PeriodicTask, Severity
from karpenter_core.provider.kit.node_class.registry import NodeClassRegistry
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.capacity_type_sync import CAPACITY_TYPES_PERIOD
from karpenter_provider_aws.catalogue.region_types import REFRESH_PERIOD
from karpenter_provider_aws.interruption.blocks import BLOCKS_PERIOD
from karpenter_provider_aws.interruption.status_checks import STATUS_PERIOD
from karpenter_provider_aws.launch.user_data_sizes import UserDataSizes
from karpenter_provider_aws.metrics import AwsMetrics
from karpenter_provider_aws.parts import ProviderParts, ProviderServices
from karpenter_provider_aws.sdk import CloudClients
from karpenter_provider_aws.settings import AwsSettings
from karpenter_provider_aws.zonal_shift import ZonalShiftReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.provider.contract import NodeClassHash, ProviderContext
    from karpenter_core.provider.kit.plugin import CloudHooks
    from karpenter_provider_aws.sdk import ClientLimits, SharedClients

__all__ = ["StartedProvider"]

_DISTRIBUTION: Final = "karpenter-provider-aws"
_PRICES_PERIOD: Final = timedelta(hours=12)
_PROFILES_PERIOD: Final = timedelta(minutes=30)
_IMAGES_PERIOD: Final = timedelta(minutes=30)
_TEMPLATES_PERIOD: Final = timedelta(minutes=1)


@final
class StartedProvider:
    """One started provider; callable from any thread."""

    def __init__(
        self,
        context: ProviderContext,
        *,
        limits: ClientLimits | None = None,
        shared: SharedClients | None = None,
    ) -> None:
        """Read the settings; `limits` and `shared` are for `CloudClients`.

        Raises:
            SettingsError: one of them cannot be used.
        """
        self.context: Final = context
        self.settings: Final = AwsSettings.from_context(context)
        self.node_classes: Final = NodeClassRegistry[EC2NodeClass]()
        with ExitStack() as opened:
            self.metrics: Final = AwsMetrics(
                context.metrics, context.clock, with_reserved=self.settings.reserved_capacity
            )
            opened.callback(self.metrics.close)
            self.clients: Final = CloudClients(
                version=version(_DISTRIBUTION),
                limits=limits,
                observe=self.metrics.sdk,
                shared=shared,
                monotonic=context.clock.monotonic,
            )
            opened.callback(self.clients.close)
            self.sizes: Final = UserDataSizes(context.metrics)
            opened.callback(self.sizes.close)
            self.shifts: Final = ZonalShiftReader(
                self.clients,
                context.clock,
                cluster=self.settings.cluster_name,
                enabled=self.settings.enable_zonal_shift,
            )
            self._opened: Final = opened.pop_all()
        self._lock: Final = Lock()
        self._parts: ProviderParts | None = None
        self._has_hydrated = False

    @property
    def parts(self) -> ProviderParts:
        """Everything that knows its region.

        Raises:
            SettingsError: nothing says which region it is.
        """
        self.clients.region  # noqa: B018 - may be a call, so it is asked for before the lock is taken
        with self._lock:
            if self._parts is None:
                self._parts = ProviderParts(
                    ProviderServices(
                        context=self.context,
                        settings=self.settings,
                        clients=self.clients,
                        metrics=self.metrics,
                        node_classes=self.node_classes,
                        sizes=self.sizes,
                        shifts=self.shifts,
                    )
                )
            return self._parts

    @property
    def hooks(self) -> CloudHooks[EC2NodeClass]:
        """The functions of the hooks; the first use may be a call for the region."""
        return self.parts.hooks

    def hash_node_class(self, node_class: EC2NodeClass) -> NodeClassHash:
        """Digest what a node is made by."""
        from karpenter_provider_aws.hashing import hash_node_class

        return hash_node_class(node_class, ca_bundle=self.settings.cluster_ca_bundle)

    def close(self) -> None:
        """Close connections and unregister metrics."""
        self._opened.close()

    # -- periodic work -------------------------------------------------------------------------

    def tasks(self) -> tuple[PeriodicTask, ...]:
        """Return what is done now and then."""
        return (
            PeriodicTask(
                name="instance-types",
                period=REFRESH_PERIOD,
                run=self._task(lambda parts: parts.catalogue.region.refresh()),
                leader_only=False,
            ),
            PeriodicTask(
                name="prices", period=_PRICES_PERIOD, run=self._refresh_prices, leader_only=False
            ),
            PeriodicTask(
                name="images",
                period=_IMAGES_PERIOD,
                run=self._task(lambda parts: parts.discovery.images.forget_deprecated()),
            ),
            PeriodicTask(
                name="launch-templates", period=_TEMPLATES_PERIOD, run=self._sweep_templates
            ),
            PeriodicTask(
                name="instance-profiles", period=_PROFILES_PERIOD, run=self._collect_profiles
            ),
            *self.shifts.tasks(),
            PeriodicTask(
                name="instance-status",
                period=STATUS_PERIOD,
                run=self._task(lambda parts: parts.interruption.sources.status.run()),
            ),
            PeriodicTask(
                name="capacity-block-expiry",
                period=BLOCKS_PERIOD,
                run=self._task(lambda parts: parts.interruption.sources.blocks.run()),
            ),
            PeriodicTask(
                name="capacity-types",
                period=CAPACITY_TYPES_PERIOD,
                run=self._sync_capacity_types,
            ),
        )

    def _task(self, work: Callable[[ProviderParts], object]) -> Callable[[], None]:
        """Return work whose parts are built when it first runs."""

        def run() -> None:
            work(self.parts)

        return run

    def _refresh_prices(self) -> None:
        catalogue = self.parts.catalogue
        now = self.context.clock.now()
        catalogue.prices.refresh(self.clients, now=now, disk=catalogue.prices_disk)

    def _sweep_templates(self) -> None:
        templates = self.parts.node_class.templates
        if not self._has_hydrated:
            templates.hydrate()
            self._has_hydrated = True
        templates.sweep()

    def _collect_profiles(self) -> None:
        parts = self.parts
        in_use = parts.node_class.resolver.profiles_in_use()
        parts.discovery.profiles.collect(in_use, complete=True)

    async def _sync_capacity_types(self) -> None:
        parts = await asyncio.to_thread(lambda: self.parts)
        await parts.interruption.capacity_types.run()

    # -- what is wrong -------------------------------------------------------------------------

    def check(self) -> tuple[Finding, ...]:
        """Return the findings of `karpenter doctor`."""
        try:
            doctor = self.parts.doctor
        except SettingsError as error:
            return (Finding(severity=Severity.ERROR, message=str(error), remedy="set AWS_REGION"),)
        return doctor.check()
