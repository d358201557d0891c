"""A plug-in for clouds with one call per instance, as most REST clouds have.

A cloud derives from `PerInstanceCloud`, and supplies what differs: its calls, and what their answers
mean. The hooks follow: launches of the cheapest offering, drift by one listing for many NodeClaims,
failures after a launch was accepted, a catalogue that is read every five minutes. A plug-in adds hooks,
and replaces these, with `@hookimpl`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.errors import CloudProviderError, NodeClaimNotFoundError, SettingsError
from karpenter_core.provider.contract import DriftFinding, TerminationStatus
from karpenter_core.provider.kit.doctor import DoctorCheck, ok_finding, run_checks
from karpenter_core.provider.kit.late_failures import LateFailures
from karpenter_core.provider.kit.launch.cheapest import launch_cheapest
from karpenter_core.provider.kit.node_class.hashing import hash_fields
from karpenter_core.provider.kit.one_by_one import one_by_one
from karpenter_core.provider.kit.plugin import ProviderPlugin
from karpenter_core.provider.kit.refreshed_value import RefreshedValue
from karpenter_core.provider.markers import hookimpl

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.errors import OfferingKey
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import (
        Finding,
        Instance,
        InstanceListing,
        Interruption,
        LaunchedInstance,
        LaunchRequest,
        NodeClassHash,
        NodeClassResolution,
        PeriodicTask,
        ProviderContext,
    )

__all__ = ["PerInstanceCloud", "PerInstancePlugin"]

C = TypeVar("C", bound=NodeClass)

_CATALOGUE_PERIOD: Final = timedelta(minutes=5)


class PerInstanceCloud(ABC, Generic[C]):
    """The calls of a cloud for one cluster; callable from any thread.

    Every method may raise CloudProviderError and its subclasses.
    """

    def __init__(self, context: ProviderContext) -> None:
        """Send no request yet (PC-007).

        Raises:
            SettingsError: the cluster has no name; such clusters would terminate each other's instances.
        """
        if not context.cluster.name:
            raise SettingsError("--cluster-name: must be given; instances are tagged with it")
        self.cluster: Final = context.cluster.name
        self.types: Final = RefreshedValue("catalogue", self.read_types, period=_CATALOGUE_PERIOD)
        self.late_failures: Final = LateFailures(self.failures, context.read_claims)

    @abstractmethod
    def resolve(self, node_class: C) -> NodeClassResolution:
        """Find what the NodeClass refers to (`karpenter_resolve_node_class`)."""

    def hashed_fields(self, _node_class: C, /) -> Mapping[str, object]:
        """Return the fields whose change replaces nodes, as JSON values; none by default."""
        return {}

    hash_version = "v1"
    """Change it whenever the same NodeClass would get other `hashed_fields`."""

    @abstractmethod
    def read_types(self) -> Sequence[InstanceType]:
        """Read the catalogue: every instance type, sorted by name."""

    @abstractmethod
    def create(self, request: LaunchRequest, node_class: C, offering: OfferingKey, /) -> Instance:
        """Create the instance of a claim from an offering, or return the one that the claim has.

        Any number of calls for one `request.token` create one instance, with whatever offering.

        Raises:
            InsufficientCapacityError: the offering, or a wider scope, has no capacity.
        """

    @abstractmethod
    def list_instances(self) -> InstanceListing:
        """List the instances of the cluster, those that failed or are terminating too."""

    @abstractmethod
    def find(self, provider_id: str, /) -> Instance | None:
        """Return an instance; None only if the cloud answers that it does not exist."""

    @abstractmethod
    def terminate(self, provider_id: str, /) -> bool:
        """Start a termination; False only if the cloud answers that there is no such instance."""

    def drift_reason(self, _instance: Instance, _node_class: C, /) -> str:
        """Return why an instance no longer matches its NodeClass, in CamelCase; empty if it does."""
        return ""

    def failures(self) -> Mapping[str, CloudProviderError]:
        """Return the errors of launches that failed after they were accepted, by provider ID."""
        return {}

    def close(self) -> None:
        """Close connections; nothing by default."""


class PerInstancePlugin(ProviderPlugin[PerInstanceCloud[C]], Generic[C]):
    """The hooks of such a cloud, whose NodeClass kind is `C`."""

    cloud: type[PerInstanceCloud[C]]
    """The class of the cloud; an object is made at each start."""

    def start_provider(self, context: ProviderContext) -> PerInstanceCloud[C]:
        """Make the cloud."""
        return self.cloud(context)

    @hookimpl
    def karpenter_resolve_node_class(self, node_class: NodeClass) -> NodeClassResolution:
        """Find what the NodeClass refers to."""
        return self.running.resolve(cast("C", node_class))

    @hookimpl
    def karpenter_hash_node_class(self, node_class: NodeClass) -> NodeClassHash:
        """Hash the fields whose change replaces nodes."""
        cloud = self.running
        return hash_fields(cloud.hashed_fields(cast("C", node_class)), version=cloud.hash_version)

    @hookimpl
    def karpenter_list_instance_types(self) -> Sequence[InstanceType]:
        """Return the catalogue as it was last read."""
        return self.running.types.get()

    @hookimpl
    def karpenter_declare_tasks(self) -> Sequence[PeriodicTask]:
        """Read the catalogue again from time to time."""
        return [self.running.types.task()]

    @hookimpl
    @one_by_one
    def karpenter_launch_instances(self, request: LaunchRequest) -> LaunchedInstance:
        """Launch the cheapest offering that has capacity."""
        cloud, own = self.running, cast("C", request.node_class)
        well_known = self.labels.well_known
        return launch_cheapest(
            request, lambda key: cloud.create(request, own, key), own_labels=well_known
        )

    @hookimpl
    @one_by_one
    def karpenter_fetch_instances(self, provider_id: str) -> Instance:
        """Return an instance."""
        found = self.running.find(provider_id)
        if found is None:
            raise NodeClaimNotFoundError(f"there is no instance {provider_id}")
        return found

    @hookimpl
    def karpenter_list_instances(self) -> InstanceListing:
        """List the instances of the cluster."""
        return self.running.list_instances()

    @hookimpl
    @one_by_one
    def karpenter_terminate_instances(self, provider_id: str) -> TerminationStatus:
        """Start the termination; the core calls again until the instance is gone."""
        exists = self.running.terminate(provider_id)
        return TerminationStatus.STARTED if exists else TerminationStatus.GONE

    @hookimpl
    def karpenter_detect_drift(
        self, node_claims: Sequence[NodeClaim], node_class: NodeClass
    ) -> Sequence[DriftFinding | None]:
        """Compare the instances of one listing with their NodeClass; one that is not in it is skipped."""
        cloud, own = self.running, cast("C", node_class)
        instances = {each.provider_id: each for each in cloud.list_instances().instances}

        def finding(claim: NodeClaim) -> DriftFinding | None:
            instance = instances.get(claim.status.provider_id)
            reason = cloud.drift_reason(instance, own) if instance else ""
            return DriftFinding(reason=reason) if reason else None

        return [finding(claim) for claim in node_claims]

    @hookimpl
    def karpenter_poll_interruptions(self) -> Sequence[Interruption]:
        """Announce launches that failed after they were accepted."""
        return self.running.late_failures.poll()

    @hookimpl
    def karpenter_acknowledge_interruptions(self, ids: Sequence[str]) -> None:
        """Announce these failures no more."""
        self.running.late_failures.acknowledge(ids)

    @hookimpl
    def karpenter_check(self) -> Sequence[Finding]:
        """Read the catalogue and list the instances."""
        cloud, settings = self.running, ", ".join(spec.flag for spec in self.settings)

        def read() -> Finding:
            types, instances = len(cloud.read_types()), len(cloud.list_instances().instances)
            return ok_finding(f"{self.title} has {types} instance types; {instances} instances run")

        return run_checks(DoctorCheck(run=read, remedy=f"check {settings or 'the settings'}"))
