"""Launches a claim by one call per instance: cheapest offering, then the next.

For a hook with `@one_by_one`, in a cloud with idempotency tokens, or one that refuses a name that
exists: the call for the same claim then never creates a second instance, whatever its offering.

    @hookimpl
    @one_by_one
    def karpenter_launch_instances(self, request):
        return launch_cheapest(request, lambda key: self.create(request, key))

A cloud with an order of its own, or with shortages of quotas, calls `create_in_order`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, WELL_KNOWN, ZONE
from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    OfferingKey,
)
from karpenter_core.provider.catalogue import Requirements, compatible_offerings
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.launch_candidates import allocatable_for, offering_key
from karpenter_core.provider.kit.node_class.readiness import not_ready_error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.contract import Instance, LaunchRequest

__all__ = ["cheapest_offerings", "create_in_order", "launch_cheapest", "launched_instance"]

T = TypeVar("T")

_MAX_CALLS: Final = 20
"""Calls for one claim: after a series of shortages the core plans again, without these offerings."""


def cheapest_offerings(
    request: LaunchRequest, *, own_labels: Collection[str] = ()
) -> list[tuple[InstanceType, Offering]]:
    """Return the available offerings that the claim allows, cheapest first; ties by name and zone.

    `own_labels` are the provider's own well-known labels.
    """
    allowed = Requirements.from_specs(request.node_claim.spec.requirements)
    found = [
        (it, offering)
        for it in request.instance_types
        for offering in compatible_offerings(it, allowed, well_known=WELL_KNOWN | set(own_labels))
    ]
    return sorted(found, key=lambda each: (each[1].price.amount, each[0].name, each[1].zone))


def launch_cheapest(
    request: LaunchRequest,
    create: Callable[[OfferingKey], Instance],
    *,
    own_labels: Collection[str] = (),
) -> LaunchedInstance:
    """Launch the instance of a claim, or return the one that it has.

    `create` makes one call. It returns the instance of the claim, which may have another offering if
    an earlier call created it. It raises `InsufficientCapacityError` for a shortage; offerings may be
    left out. After a shortage of one offering the next one is tried, and a wider one ends the launch.

    Raises:
        InsufficientCapacityError: nothing is left, with the offerings tried; or a wider shortage.
        NodeClassNotReadyError, CloudProviderError: the NodeClass is not ready; or what `create` raised.
    """
    if (error := not_ready_error(request.node_class)) is not None:
        raise error
    instance, shortages = create_in_order(
        request,
        cheapest_offerings(request, own_labels=own_labels),
        lambda it, offering: create(offering_key(it.name, offering)),
    )
    return launched_instance(request, instance, shortages=shortages)


def create_in_order(
    request: LaunchRequest,
    offerings: Iterable[tuple[InstanceType, Offering]],
    create: Callable[[InstanceType, Offering], T],
    *,
    is_open: Callable[[InstanceType, Offering], bool] | None = None,
) -> tuple[T, tuple[InsufficientCapacityError, ...]]:
    """Return what `create` returns for the first offering that has capacity, and the shortages before.

    `create` is that of `launch_cheapest`. `is_open` returns whether nothing has come to be known against
    an offering since it was listed, by this launch or another one. With it the launch goes on after a
    shortage of `quota_groups`, too: `create` must have recorded it, so that no offering in it is open.

    Raises:
        InsufficientCapacityError: nothing is left, with all that was found exhausted; or a wider shortage.
        CloudProviderError: what `create` raised.
    """
    tried: list[OfferingKey] = []
    closed: list[OfferingKey] = []
    exceeded: list[InsufficientCapacityError] = []
    calls = 0
    for it, offering in offerings:
        key = offering_key(it.name, offering)
        if is_open is not None and not is_open(it, offering):
            closed.append(key)
            continue
        if calls == _MAX_CALLS:
            break
        calls += 1
        try:
            created = create(it, offering)
        except InsufficientCapacityError as error:
            if error.scope is ExhaustedScope.OFFERING and not error.quota_groups:
                tried += error.offerings or [key]
            elif error.scope is ExhaustedScope.OFFERING and is_open is not None:
                exceeded.append(error)
            elif error.offerings or error.quota_groups:
                raise
            else:
                message = str(error)
                raise InsufficientCapacityError(
                    message, offerings=[key], scope=error.scope
                ) from error
        else:
            shortages = [_shortage(request, tried, exceeded)] if tried or exceeded else []
            return created, tuple(shortages)
    raise _shortage(request, tried or ([] if exceeded else closed), exceeded)


def launched_instance(
    request: LaunchRequest,
    instance: Instance,
    *,
    shortages: Sequence[InsufficientCapacityError] = (),
) -> LaunchedInstance:
    """Return the outcome of a claim whose instance exists, with the amounts of its instance type.

    Raises:
        CloudProviderError: the claim does not allow the instance type.
    """
    it = next((it for it in request.instance_types if it.name == instance.instance_type), None)
    if it is None:
        message = (
            f"{instance.provider_id} is of type {instance.instance_type}, which is not requested"
        )
        raise CloudProviderError(message)
    sold = [offering for offering in it.offerings if _is_of(offering, instance)]
    return LaunchedInstance(
        provider_id=instance.provider_id,
        instance_type=it.name,
        zone=instance.zone,
        capacity_type=instance.capacity_type,
        capacity={**it.capacity, **((sold[0].capacity_override if sold else None) or {})},
        allocatable=allocatable_for(it, sold[0]) if sold else it.allocatable(),
        image_id=instance.image_id,
        labels={
            **instance.labels,
            INSTANCE_TYPE: it.name,
            ZONE: instance.zone,
            CAPACITY_TYPE: instance.capacity_type,
        },
        shortages=tuple(shortages),
    )


def _is_of(offering: Offering, instance: Instance) -> bool:
    return (offering.zone, offering.capacity_type) == (instance.zone, instance.capacity_type)


def _shortage(
    request: LaunchRequest,
    tried: Sequence[OfferingKey],
    exceeded: Sequence[InsufficientCapacityError] = (),
) -> InsufficientCapacityError:
    """Return the shortage of offerings, and of quota groups that launches named in their own words."""
    name = request.node_claim.name
    texts = [str(error) for error in exceeded]
    if tried:
        names = ", ".join(f"{key.instance_type} in {key.zone}" for key in tried)
        texts.insert(0, f"sold out for NodeClaim {name}: {names}")
    return InsufficientCapacityError(
        "; ".join(dict.fromkeys(texts)) or f"no offering is available for NodeClaim {name}",
        offerings=tuple(
            dict.fromkeys((*tried, *(key for error in exceeded for key in error.offerings)))
        ),
        quota_groups=tuple(
            dict.fromkeys(group for error in exceeded for group in error.quota_groups)
        ),
    )
