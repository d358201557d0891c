"""The Alibaba Cloud provider as a subject of the conformance kit.

The SDKs are the real ones; the simulated cloud is another server in this process. It lives for one
test, so that no state reaches the next test.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.api.base import ObjectMeta
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.testing.simulated_cloud import (
    changed_environment,
    cloud_troubles,
    partial_listing,
)
from karpenter_core.testing.subject import CloudTrouble, ConformanceSubject
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.plugin import AlibabaCloudProvider
from karpenter_provider_alibabacloud.sdk import ClientLimits
from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud
from karpenter_simulated_alibabacloud.events import EventCycle
from karpenter_simulated_alibabacloud.types import realistic_types

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping
    from contextlib import AbstractContextManager

    from karpenter_core.errors import OfferingKey

__all__ = [
    "few_types",
    "node_class_for",
    "settings_for",
    "simulated_environment",
    "subject",
    "subject_on",
]

_INSTANCE_TYPES: Final = frozenset(
    {
        "ecs.c7.large",
        "ecs.ebmg7.32xlarge",
        "ecs.g7.large",
        "ecs.g7.xlarge",
        "ecs.g8y.large",
        "ecs.gn7i-c8g1.2xlarge",
        "ecs.t6-c1m1.large",
    }
)
"""Few, as each test reads them anew."""
_LAUNCHES: Final = ("CreateAutoProvisioningGroup", "RunInstances")
_LIMITS: Final = ClientLimits(
    connect_seconds=1,
    read_seconds=2,
    launch_read_seconds=2,
    retries=RetryPolicy(
        throttled_attempts=2,
        transient_attempts=2,
        in_progress_attempts=3,
        in_progress_seconds=0.01,
        first_backoff_seconds=0.01,
        longest_backoff_seconds=1,
    ),
    price_calls_per_second=1000,
)
_PATIENCE: Final = timedelta(seconds=20)
"""Above what is needed to give up on the calls of one hook, one after the other."""
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def simulated_environment(cloud: SimulatedAlibabaCloud) -> AbstractContextManager[None]:
    """Lead the SDKs of this process to a simulated cloud while the context is open."""
    proxies = (*_PROXIES, *(name.lower() for name in _PROXIES))
    return changed_environment({**cloud.environment, **dict.fromkeys(proxies)})


def node_class_for(cloud: SimulatedAlibabaCloud, **spec: object) -> ECSNodeClass:
    """Return an ECSNodeClass that fits the simulated world; `spec` fields, as JSON, come on top."""
    discovery = {"tags": dict(cloud.world.discovery)}
    fields: dict[str, object] = {
        "imageSelectorTerms": [{"alias": "ContainerOS"}],
        "securityGroupSelectorTerms": [discovery],
        "vSwitchSelectorTerms": [discovery],
        **spec,
    }
    return ECSNodeClass(
        metadata=ObjectMeta(name="default", uid="uid-of-class", generation=1),
        spec=ECSNodeClass.model_validate({"spec": fields}).spec,
    )


def settings_for(cloud: SimulatedAlibabaCloud) -> Mapping[str, str | float | bool | timedelta]:
    """Return the settings that lead the provider to a simulated cloud, by flag without dashes."""
    return {
        "cluster-id": cloud.world.cluster,
        "region-id": cloud.account.region,
        "alibaba-endpoint-ecs": cloud.endpoint,
        "alibaba-endpoint-vpc": cloud.endpoint,
        "alibaba-endpoint-cs": cloud.endpoint,
        "alibaba-endpoint-protocol": "http",
        "interruption-poll-interval": timedelta(seconds=1),
    }


@contextmanager
def subject() -> Generator[ConformanceSubject]:
    """Start a simulated cloud and return the provider on it."""
    with few_types() as cloud, simulated_environment(cloud):
        yield subject_on(cloud)


def few_types() -> SimulatedAlibabaCloud:
    """Return a simulated cloud, not yet started, that sells little."""
    return SimulatedAlibabaCloud(
        instance_types=[it for it in realistic_types() if it.name in _INSTANCE_TYPES]
    )


def subject_on(cloud: SimulatedAlibabaCloud) -> ConformanceSubject:
    """Return the provider on a simulated cloud that the environment leads to."""
    return _CloudControls(cloud).subject()


@final
class _CloudControls:
    """Controls a simulated cloud for the conformance kit."""

    def __init__(self, cloud: SimulatedAlibabaCloud) -> None:
        self._cloud: Final = cloud
        self._troubles: Final[
            Mapping[CloudTrouble, Callable[[], AbstractContextManager[object]]]
        ] = {
            **cloud_troubles(
                cloud, launches=_LAUNCHES, throttled=CloudError("Throttling.User", "")
            ),
            CloudTrouble.QUOTA: self._quota,
            CloudTrouble.TOKEN_IN_PROGRESS: self._token_in_progress,
            CloudTrouble.PARTIAL_LISTING: lambda: partial_listing(
                cloud,
                "DescribeInstances",
                has_token=lambda parameters: bool(parameters.get("NextToken")),
            ),
        }

    def subject(self) -> ConformanceSubject:
        """Return the provider under test."""
        cloud = self._cloud
        return ConformanceSubject(
            name="alibabacloud",
            make=lambda: AlibabaCloudProvider(limits=_LIMITS),
            node_class=node_class_for(cloud),
            settings=settings_for(cloud),
            troubles=frozenset(self._troubles),
            trouble=lambda _plugin, wanted: self._troubles[wanted](),
            patience=_PATIENCE,
            node_manifest=lambda _plugin, provider_id: cloud.node(provider_id),
            list_resources=self._held,
            create_foreign_instance=lambda _plugin: cloud.launch_foreign(),
            sell_out=self._sell_out,
            interrupt=self._interrupt,
            protect=self._protect,
            drift=self._drift,
            changed_node_class=node_class_for(cloud, keyPairName="another"),
            unusable_node_classes={
                "vSwitchSelectorTerms": node_class_for(
                    cloud, vSwitchSelectorTerms=[{"tags": {"nobody": "has-this"}}]
                ),
                "sg-0123456789": node_class_for(
                    cloud, securityGroupSelectorTerms=[{"id": "sg-0123456789"}]
                ),
                "ContainerOS@20200101": node_class_for(
                    cloud, imageSelectorTerms=[{"alias": "ContainerOS@20200101"}]
                ),
            },
            sdk_modules=(
                "alibabacloud_credentials",
                "alibabacloud_cs20151215",
                "alibabacloud_ecs20140526",
                "alibabacloud_tea_openapi",
                "alibabacloud_vpc20160428",
                "darabonba",
            ),
        )

    def _held(self, _plugin: object) -> Collection[str]:
        return self._cloud.held().all

    def _sell_out(self, _plugin: object, offering: OfferingKey) -> None:
        """Have DescribeAvailableResource tell of it at once."""
        self._cloud.behaviour.reports_stock = True
        self._cloud.capacity.sell_out(
            capacity_type=offering.capacity_type,
            instance_type=offering.instance_type,
            zone=offering.zone,
        )

    def _interrupt(self, plugin: object, provider_id: str) -> None:
        """Take a spot instance back, or maintain any other one at once; and let the provider look.

        Announcements are found by periodic tasks, which run only when somebody says so here.
        """
        if self._cloud.instance(provider_id).is_spot:
            self._cloud.reclaim(provider_id)
        else:
            self._cloud.schedule_event(provider_id, cycle=EventCycle.Executing)
        interruption_sources = cast(
            "AlibabaCloudProvider", plugin
        ).running.parts.interruption_sources
        interruption_sources.spot.run()
        interruption_sources.events.run()

    @contextmanager
    def _protect(self, _plugin: object, provider_id: str) -> Generator[None]:
        self._cloud.protect(provider_id)
        try:
            yield
        finally:
            self._cloud.protect(provider_id, protected=False)

    def _drift(self, _plugin: object, provider_id: str) -> None:
        """Move an instance into another security group, as an operator might."""
        group = self._cloud.networks.add_security_group(
            self._cloud.world.vpc_id, name="somebody-elses", kind="enterprise"
        )
        self._cloud.instance(provider_id).security_groups = (group.id,)

    @contextmanager
    def _token_in_progress(self) -> Generator[None]:
        """Lose the reply of a launch, and refuse its token for as long as the context is open."""
        behaviour = self._cloud.behaviour
        before, behaviour.tokens_in_progress = behaviour.tokens_in_progress, 10**6
        try:
            with self._troubles[CloudTrouble.LOST_REPLY]():
                yield
        finally:
            behaviour.tokens_in_progress = before

    @contextmanager
    def _quota(self) -> Generator[None]:
        for capacity_type in ("on-demand", "spot"):
            self._cloud.capacity.limit_vcpus(0, capacity_type=capacity_type)
        try:
            yield
        finally:
            self._cloud.capacity.clear()
