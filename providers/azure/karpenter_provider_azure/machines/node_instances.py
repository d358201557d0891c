"""Joins virtual machines and AKS machines; routes calls by provider ID.

A failure of one kind is no failure of the other: a list of machines that cannot be read makes the listing
incomplete, and the outcomes of machines unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.provider.kit.instances.batch_terminator import BatchTerminator
from karpenter_core.provider.kit.instances.cluster_instances import ClusterInstances
from karpenter_core.provider.kit.launch.instance_claims import SingleClaims
from karpenter_core.provider.kit.recent_launches import RecentLaunches
from karpenter_provider_azure.arm.errors import ArmError
from karpenter_provider_azure.machines.described_machines import DescribedMachine, claim_of_machine
from karpenter_provider_azure.machines.machine_reader import MachineReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import (
        FetchOutcome,
        InstanceListing,
        LeaderFence,
        TerminateOutcome,
    )
    from karpenter_provider_azure.arm.client import ArmClient
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.instances.vm_reader import VmReader
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["AksMachines", "NodeInstances", "aks_machines", "call_by_kind", "machine_terminator"]

_BATCH: Final = 50
"""As many machines as Karpenter's own provider makes by one request."""
_MAX_REFUSALS: Final = 10
"""More than it takes to find one machine of a batch by halves."""
_PAUSE: Final = timedelta(seconds=30)
"""By then AKS shows that a machine is being deleted; the request is made again if it does not."""
_BAD_REQUEST: Final = 400


def machine_terminator(
    delete: Callable[[Sequence[str]], None], clock: Clock
) -> BatchTerminator[DescribedMachine, ArmError]:
    """Return what terminates machines; `delete` is that of `MachineReader`."""
    return BatchTerminator(
        _MachineDeletions(delete),
        batch_size=_BATCH,
        max_refusals=_MAX_REFUSALS,
        pause=_PAUSE,
        monotonic=clock.monotonic,
    )


@final
class _MachineDeletions:
    """Deletions of several machines each."""

    def __init__(self, delete: Callable[[Sequence[str]], None]) -> None:
        self._delete: Final = delete

    def known_outcome(self, instance: DescribedMachine) -> TerminateOutcome | None:
        """Return STARTED for a machine that is being deleted."""
        return TerminationStatus.STARTED if instance.is_leaving else None

    def send(self, instance_ids: Sequence[str]) -> None:
        """Start deletions."""
        self._delete(instance_ids)

    def read_refusal(self, error: CloudProviderError) -> ArmError | None:
        """Return an error that may be about some of the machines; a conflict is one of the pool."""
        if not isinstance(error, ArmError) or error.may_be_done:
            return None
        return error if error.status == _BAD_REQUEST else None

    def refused_outcome(
        self, instance_id: str, refusal: ArmError, *, is_alone: bool
    ) -> TerminateOutcome:
        """Return an error for a machine."""
        del is_alone
        return CloudProviderError(f"AKS machine {instance_id} was not deleted: {refusal}")


Outcome = TypeVar("Outcome")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class AksMachines:
    """The AKS machines of the cluster."""

    instances: ClusterInstances[DescribedMachine]
    is_machine: Callable[[str], bool]
    """Whether a provider ID is that of a machine."""


def aks_machines(
    client: ArmClient,
    clock: Clock,
    *,
    settings: AzureSettings,
    vms: VmReader,
    fence: LeaderFence,
) -> AksMachines | None:
    """Return the machines of the pool of the settings; None if they are not managed."""
    if not settings.manage_existing_aks_machines:
        return None
    reader = MachineReader(client, settings, vms, fence)
    instances = ClusterInstances(
        clock,
        service="AKS",
        reader=reader,
        terminator=machine_terminator(reader.delete, clock),
        claims=SingleClaims(claim_of_machine),
        recent=RecentLaunches(clock),  # remains empty: no machine is launched
        shown_within=None,
    )
    return AksMachines(instances=instances, is_machine=reader.is_machine)


def call_by_kind(
    items: Sequence[Item],
    is_machine: Callable[[Item], bool],
    calls: tuple[
        Callable[[Sequence[Item]], Sequence[Outcome]], Callable[[Sequence[Item]], Sequence[Outcome]]
    ],
) -> list[Outcome | CloudProviderError]:
    """Return an outcome for each item, in their order, by one call for each kind: virtual machines, AKS machines.

    If both kinds are there, an error of one call is the outcome of its items.

    Raises:
        CloudProviderError: the only call failed.
    """
    of_vms, of_machines = calls
    kinds = [is_machine(each) for each in items]
    if not any(kinds):
        return [*of_vms(items)]
    if all(kinds):
        return [*of_machines(items)]
    outcomes: dict[int, Outcome | CloudProviderError] = {}
    for kind, call in ((False, of_vms), (True, of_machines)):
        places = [place for place, each in enumerate(kinds) if each is kind]
        try:
            found = call([items[place] for place in places])
        except CloudProviderError as error:
            outcomes |= dict.fromkeys(places, error)
        else:
            outcomes |= dict(zip(places, found, strict=True))
    return [outcomes[place] for place in range(len(items))]


@final
class NodeInstances:
    """The instances of the cluster, of both kinds; callable from any thread."""

    def __init__(self, vms: ClusterInstances[DescribedVm], machines: AksMachines | None) -> None:
        """`machines` is None if AKS machines are not managed."""
        self._vms: Final = vms
        self._machines: Final = machines

    def is_machine(self, provider_id: str) -> bool:
        """Whether a provider ID is that of a machine that is managed."""
        return self._machines is not None and self._machines.is_machine(provider_id)

    def fetch(self, provider_ids: Sequence[str]) -> list[FetchOutcome]:
        """Return an instance or an error for each id, in their order.

        Raises:
            CloudProviderError: Azure refused or did not answer.
        """
        machines = self._machines
        if machines is None:
            return self._vms.fetch(provider_ids)
        calls = (self._vms.fetch, machines.instances.fetch)
        return call_by_kind(provider_ids, machines.is_machine, calls)

    def terminate(self, provider_ids: Sequence[str]) -> list[TerminateOutcome]:
        """Terminate instances, or report that they are gone, in the order of the ids.

        Raises:
            CloudProviderError: the instances could not be read; nothing was done.
        """
        machines = self._machines
        if machines is None:
            return self._vms.terminate(provider_ids)
        calls = (self._vms.terminate, machines.instances.terminate)
        return call_by_kind(provider_ids, machines.is_machine, calls)

    def list(self) -> InstanceListing:
        """Return every instance of the cluster; it is incomplete if the machines cannot be listed.

        Raises:
            CloudProviderError: the virtual machines cannot be listed.
        """
        vms = self._vms.list()
        if self._machines is None:
            return vms
        try:
            machines = self._machines.instances.list()
        except CloudProviderError as error:
            problem = f"AKS machines could not be listed: {error}"
            return replace(vms, complete=False, problem=_joined(vms.problem, problem))
        both = (*vms.instances, *machines.instances)
        return replace(
            vms,
            instances=tuple(sorted(both, key=lambda each: each.provider_id)),
            complete=vms.complete and machines.complete,
            problem=_joined(vms.problem, machines.problem),
        )


def _joined(*problems: str) -> str:
    return "; ".join(each for each in problems if each)
