"""The Azure provider as a subject of the conformance kit.

The SDK is the real one; the simulated cloud is another server in this process. It lives for one test, so
that no state reaches the next test.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.labels import SPOT
from karpenter_core.provider.contract import ClusterFacts
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.testing.simulated_cloud import (
    changed_environment,
    cloud_troubles,
    partial_listing,
)
from karpenter_core.testing.subject import CloudTrouble, ConformanceSubject
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.plugin import AzureProvider
from karpenter_provider_azure.setting_specs import SETTINGS
from karpenter_simulated_azure.allocation import AllocationCode
from karpenter_simulated_azure.cloud import SimulatedAzure
from karpenter_simulated_azure.invariants import leftovers
from karpenter_simulated_azure.size_table import SIZE_TABLE
from karpenter_simulated_azure.sizes import sku_of
from karpenter_simulated_azure.usages import LOW_PRIORITY_CORES
from karpenter_simulated_azure.world import AzureWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping
    from contextlib import AbstractContextManager

    from karpenter_core.errors import OfferingKey

__all__ = [
    "facts_of",
    "few_sizes",
    "node_class_for",
    "settings_for",
    "simulated_environment",
    "subject",
    "subject_on",
]

_SIZES: Final = frozenset(
    {
        "Standard_B2s",
        "Standard_D2s_v3",
        "Standard_D2s_v5",
        "Standard_D4s_v5",
        "Standard_D4ds_v5",
        "Standard_D4pds_v5",
        "Standard_NC4as_T4_v3",
    }
)
"""Few, as each test reads them anew."""
_PUT: Final = "virtualMachines:put"
_DELETE: Final = "virtualMachines:delete"
_LIST: Final = "virtualMachines:list"
_RETRIES: Final = RetryPolicy(
    throttled_attempts=2,
    transient_attempts=2,
    in_progress_attempts=3,
    in_progress_seconds=0.01,
    first_backoff_seconds=0.01,
    longest_backoff_seconds=1,
)
_REDEPLOYED_AFTER_SECONDS: Final = 86_400
"""So late that the node drifts, and is not ended at once."""
_REDEPLOYED_SOON_SECONDS: Final = 300
_PATIENCE: Final = timedelta(seconds=20)
"""Above what is needed to give up on the calls of one hook, one after the other."""
_CA_BUNDLE: Final = "-----BEGIN CERTIFICATE-----\nc2ltdWxhdGVk\n-----END CERTIFICATE-----\n"
_FOREIGN: Final = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"),
    *("AZURE_CLIENT_SECRET", "AZURE_USERNAME", "AZURE_TOKEN_CREDENTIALS", "ARM_CLOUD"),
)


def simulated_environment(cloud: SimulatedAzure) -> AbstractContextManager[None]:
    """Direct the SDK of this process to a simulated cloud while the context is open."""
    return changed_environment({**dict.fromkeys(_FOREIGN), **cloud.environment})


def node_class_for(**spec: object) -> AKSNodeClass:
    """Return an AKSNodeClass that fits every simulated world; `spec` has fields as JSON."""
    return AKSNodeClass(
        metadata=ObjectMeta(name="default", uid="uid-of-class", generation=1),
        spec=AKSNodeClass.model_validate({"spec": spec}).spec,
    )


def settings_for(cloud: SimulatedAzure) -> Mapping[str, str | float | bool | timedelta]:
    """Return the settings that direct the provider to a simulated cloud, by flag without dashes."""
    environment = cloud.environment
    found: dict[str, str | float | bool | timedelta] = {}
    for spec in SETTINGS:
        flag = spec.flag.removeprefix("--")
        variable = spec.env or flag.upper().replace("-", "_")
        if variable in environment:
            found[flag] = environment[variable]
    return found


def facts_of(cloud: SimulatedAzure) -> ClusterFacts:
    """Return what the core knows of the cluster of a simulated cloud."""
    return ClusterFacts(
        name=cloud.world.cluster_name,
        version=f"v{cloud.world.kubernetes_version}",
        endpoint=cloud.environment["CLUSTER_ENDPOINT"],
        ca_bundle=_CA_BUNDLE,
        dns_ip=cloud.environment["DNS_SERVICE_IP"],
    )


@contextmanager
def subject() -> Generator[ConformanceSubject]:
    """Start a simulated cloud and return the provider on it."""
    with few_sizes() as cloud, simulated_environment(cloud):
        yield subject_on(cloud)


def few_sizes() -> SimulatedAzure:
    """Return a simulated cloud, not yet started, that sells few sizes."""
    world = AzureWorld()
    return SimulatedAzure(
        world=world, skus=[sku_of(each, world) for each in SIZE_TABLE if each.name in _SIZES]
    )


def subject_on(cloud: SimulatedAzure) -> ConformanceSubject:
    """Return the provider on a simulated cloud that the environment leads to."""
    return _CloudControls(cloud).subject()


@final
class _CloudControls:
    """Controls a simulated cloud for the conformance kit."""

    def __init__(self, cloud: SimulatedAzure) -> None:
        self._cloud: Final = cloud
        self._numbers: Final = count()
        throttled = CloudError("OperationNotAllowed", "", status=429, retry_after_seconds=1)
        self._troubles: Final[
            Mapping[CloudTrouble, Callable[[], AbstractContextManager[object]]]
        ] = {
            **cloud_troubles(cloud, launches=(_PUT,), throttled=throttled),
            CloudTrouble.QUOTA: self._quota,
            CloudTrouble.LATE_FAILURE: self._late_failure,
            CloudTrouble.PARTIAL_LISTING: lambda: partial_listing(
                cloud, _LIST, has_token=lambda parameters: "$skiptoken" in str(parameters["query"])
            ),
        }

    def subject(self) -> ConformanceSubject:
        """Return the provider under test."""
        cloud = self._cloud
        subnet = f"{cloud.world.vnet_id}/subnets/missing"
        return ConformanceSubject(
            name="azure",
            make=lambda: AzureProvider(retries=_RETRIES, read_seconds=2),
            node_class=node_class_for(),
            settings=settings_for(cloud),
            cluster=facts_of(cloud),
            has_tokens=False,
            troubles=frozenset(self._troubles),
            trouble=lambda _plugin, wanted: self._troubles[wanted](),
            patience=_PATIENCE,
            node_manifest=lambda _plugin, provider_id: cloud.node(provider_id),
            list_resources=self._held,
            create_foreign_instance=self._create_foreign,
            sell_out=self._sell_out,
            protect=self._protect,
            interrupt=self._interrupt,
            interrupts_nodes=True,
            drift=lambda _plugin, provider_id: cloud.schedule_redeployment(
                provider_id, after_seconds=_REDEPLOYED_AFTER_SECONDS
            ),
            changed_node_class=node_class_for(osDiskSizeGB=256),
            unusable_node_classes={
                "missing": node_class_for(vnetSubnetID=subnet),
                "FIPS": node_class_for(fipsMode="FIPS"),
            },
            sdk_modules=("azure.core", "azure.identity", "azure.mgmt"),
        )

    def _held(self, _plugin: object) -> Collection[str]:
        foreign = {each.resource_id for each in self._cloud.living() if _is_foreign(each.tags)}
        names = {each.rpartition("/")[2] for each in foreign}
        return [each for each in leftovers(self._cloud) if each.rpartition("/")[2] not in names]

    def _create_foreign(self, _plugin: object) -> str:
        return self._cloud.create_foreign_vm(f"aks-other-{next(self._numbers)}")

    def _sell_out(self, _plugin: object, offering: OfferingKey) -> None:
        """Use up the quota of the offering; Azure tells of no other shortage before a launch."""
        size = self._cloud.sizes.get(offering.instance_type)
        if size is None:
            raise LookupError(f"there is no size {offering.instance_type}")
        spot = offering.capacity_type == SPOT
        self._cloud.usages.set_limit(LOW_PRIORITY_CORES if spot else size.family, 0)

    def _interrupt(self, _plugin: object, provider_id: str) -> None:
        """Announce an eviction, or the redeployment of a virtual machine that cannot be evicted."""
        if self._cloud.instance(provider_id).is_spot:
            self._cloud.reclaim(provider_id)
        else:
            self._cloud.schedule_redeployment(provider_id, after_seconds=_REDEPLOYED_SOON_SECONDS)

    def _protect(self, _plugin: object, provider_id: str) -> AbstractContextManager[object]:
        """Refuse the deletion as a lock on the virtual machine does."""
        path = self._cloud.instance(provider_id).resource_id.lower()
        return self._cloud.fail(
            _DELETE,
            code="ScopeLocked",
            message=f"The scope '{path}' cannot perform delete operation because following scope(s)"
            f" are locked: '{path}'. Please remove the lock and try again.",
            status=409,
            times=None,
            where=lambda parameters: str(parameters["path"]).lower() == path,
        )

    @contextmanager
    def _quota(self) -> Generator[None]:
        usages = self._cloud.usages
        names = ("cores", LOW_PRIORITY_CORES, *{each.family for each in self._cloud.sizes.all})
        for name in names:
            usages.set_limit(name, 0)
        try:
            yield
        finally:
            usages.clear()

    def _late_failure(self) -> AbstractContextManager[object]:
        return self._cloud.fail_late(
            code=AllocationCode.REGIONAL, message="Allocation failed.", after_seconds=0.2
        )


def _is_foreign(tags: Mapping[str, str]) -> bool:
    return tags.get("karpenter.azure.com_cluster") == "other"
