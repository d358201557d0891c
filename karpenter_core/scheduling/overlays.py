"""Applies evaluated NodeOverlays to catalogues.

An `OverlayStore` has, for each NodePool that was evaluated, the changes by instance type and offering
(`lifecycle.nodeoverlay.evaluation` makes it). Applying copies the instance types and offerings that
are changed and shares all others: a catalogue that no overlay selects stays the same object, so that
its compiled columns stay valid.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from karpenter_core.scheduling.instance_types import OVERLAY_SOURCE
from karpenter_core.scheduling.problem import Catalogue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.records import Resources
    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.price_changes import PriceChange
    from karpenter_core.scheduling.requirements import Requirements

__all__ = [
    "OfferingOverlay",
    "OverlaidTypes",
    "OverlayStore",
    "PoolOverlays",
    "TypeOverlay",
    "apply_overlays",
    "make_pool_overlays",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingOverlay:
    """The change of the price of one offering, and the overlays that it comes from."""

    change: PriceChange | None
    changed_by: str
    """Name of the overlay that sets or changes the price."""
    fee_per_hour: float
    """Sum of the fees per node that overlays add, in the currency of the price."""
    fee_by: tuple[str, ...]
    """Names of the overlays that add a fee."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeOverlay:
    """The changes of one instance type in one NodePool."""

    offerings: Mapping[Requirements, OfferingOverlay]
    """By the requirements of the offering."""
    capacity: Resources
    """Amounts that replace or add to those of the instance type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOverlays:
    """The changes of one NodePool's catalogue; `digest` is equal if they are equal."""

    types: Mapping[str, TypeOverlay] = field(default_factory=dict[str, TypeOverlay])
    """By name of the instance type; those without changes are left out."""
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayStore:
    """The result of one evaluation of all overlays.

    A NodePool that is missing was not evaluated: its catalogue must not be used.
    """

    pools: Mapping[str, PoolOverlays] = field(default_factory=dict[str, PoolOverlays])


def make_pool_overlays(types: Mapping[str, TypeOverlay]) -> PoolOverlays:
    """Return the changes of a NodePool with their digest."""
    if not types:
        return PoolOverlays()
    digest = blake2b(digest_size=8)
    texts: dict[Requirements, str] = {}
    for name, overlay in sorted(types.items()):
        lines = [name, *(f"{key}={amount}" for key, amount in sorted(overlay.capacity.items()))]
        for requirements, each in overlay.offerings.items():
            text = texts.get(requirements)
            if text is None:
                text = texts[requirements] = "|".join(
                    str(r) for _, r in sorted(requirements.items())
                )
            fee = f"{each.fee_per_hour!r} {' '.join(each.fee_by)}" if each.fee_by else ""
            lines.append(f"{text}:{each.change!r}:{each.changed_by}:{fee}")
        digest.update("\x1f".join(lines).encode())
        digest.update(b"\x1e")
    return PoolOverlays(types=types, digest=digest.hexdigest())


def apply_overlays(catalogue: Catalogue, overlays: PoolOverlays) -> Catalogue:
    """Return the catalogue with the changes; the same object if none of them applies to it."""
    if not overlays.types:
        return catalogue
    changed = False
    types: list[InstanceType] = []
    for instance_type in catalogue.instance_types:
        overlay = overlays.types.get(instance_type.name)
        result = instance_type if overlay is None else _overlaid(instance_type, overlay)
        changed |= result is not instance_type
        types.append(result)
    if not changed:
        return catalogue
    version = f"{catalogue.version}+{overlays.digest}"
    return Catalogue(version=version, instance_types=tuple(types))


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlaidTypes:
    """The names of the instance types of a catalogue that overlays have changed."""

    price: frozenset[str]
    capacity: frozenset[str]

    @classmethod
    def of(cls, catalogue: Catalogue) -> OverlaidTypes:
        """Return those of a catalogue."""
        types = catalogue.instance_types
        return cls(
            price=frozenset(it.name for it in types if any(o.is_overlaid for o in it.offerings)),
            capacity=frozenset(it.name for it in types if it.overlaid_resources),
        )


def _overlaid(instance_type: InstanceType, overlay: TypeOverlay) -> InstanceType:
    offerings = tuple(
        offering
        if (change := overlay.offerings.get(offering.requirements)) is None
        else _with_change(offering, change)
        for offering in instance_type.offerings
    )
    if all(map(_is_same, offerings, instance_type.offerings)):
        offerings = instance_type.offerings
    if not overlay.capacity:
        if offerings is instance_type.offerings:
            return instance_type
        return replace(instance_type, offerings=offerings)
    return replace(
        instance_type,
        offerings=offerings,
        capacity={**instance_type.capacity, **overlay.capacity},
        overlaid_resources=instance_type.overlaid_resources | overlay.capacity.keys(),
    )


def _is_same(one: Offering, other: Offering) -> bool:
    return one is other


def _with_change(offering: Offering, overlay: OfferingOverlay) -> Offering:
    price = offering.price if overlay.change is None else overlay.change.apply(offering.price)
    if overlay.fee_by:
        price = replace(price, amount=price.amount + overlay.fee_per_hour)
    names = dict.fromkeys((*filter(None, (overlay.changed_by,)), *overlay.fee_by))
    sources = (*filter(None, (offering.price_source,)), *(f'{OVERLAY_SOURCE} "{n}"' for n in names))
    return replace(
        offering,
        price=price,
        list_price=offering.list_price or offering.price,
        price_source=", ".join(sources),
    )
