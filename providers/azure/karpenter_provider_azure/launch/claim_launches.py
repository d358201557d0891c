"""Holds the inputs of launches: the catalogue, and what one claim may be launched from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.errors import (
    BadInputError,
    ExhaustedScope,
    InsufficientCapacityError,
)
from karpenter_core.provider.kit.launch_candidates import offering_key
from karpenter_provider_azure.launch.offering_order import ranked_offerings
from karpenter_provider_azure.resource_ids import vm_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize

__all__ = ["ClaimLaunch", "LaunchCatalogue", "QuotaReservations", "node_class_of"]


class QuotaReservations(Protocol):
    """The methods of `RegionQuotas` that launches use; a launch is known by the UID of its claim."""

    def reserve(self, key: str, size: VmSize, capacity_type: str) -> str:
        """Count the vCPUs of a launch; if there is no room for them, return the quota instead."""
        ...

    def note_launched(self, key: str) -> None:
        """Count a launch until a reading of the quotas does."""
        ...

    def release(self, key: str) -> None:
        """Count a launch no more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCatalogue:
    """The functions of the catalogue that launches use; callable from any thread."""

    sizes: Callable[[], Mapping[str, VmSize]]
    """Returns the VM sizes of the region by name."""
    is_open: Callable[[InstanceType, Offering], bool]
    """Whether an offering is available by all that is known now (`InstanceTypeCatalogue.is_open`)."""
    instance_types: Callable[[AKSNodeClass], Iterable[InstanceType]]
    """Returns all instance types of a NodeClass."""
    quotas: QuotaReservations


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimLaunch:
    """One call of the hook."""

    request: LaunchRequest
    node_class: AKSNodeClass

    def of_all_offerings(self, error: CloudProviderError) -> CloudProviderError:
        """Return an error; one about the NodeClass names all offerings, none of which it can launch."""
        if (
            not isinstance(error, InsufficientCapacityError)
            or error.scope is not ExhaustedScope.NODE_CLASS
        ):
            return error
        keys = [
            offering_key(it.name, offering)
            for equal in ranked_offerings(self.request)
            for it, offering in equal
        ]
        return InsufficientCapacityError(str(error), offerings=keys, scope=error.scope)

    @property
    def vm_name(self) -> str:
        """The name of the virtual machine."""
        return vm_name(self.request.node_claim.name)

    @property
    def node_pool(self) -> str:
        """The NodePool of the claim; empty for none."""
        return self.request.node_claim.metadata.labels.get(NODE_POOL, "")


def node_class_of(request: LaunchRequest) -> AKSNodeClass:
    """Return the NodeClass of a request.

    Raises:
        BadInputError: it is of another kind.
    """
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass

    if not isinstance(request.node_class, AKSNodeClass):
        raise BadInputError(f'"{request.node_class.name}" is not an AKSNodeClass')
    return request.node_class
