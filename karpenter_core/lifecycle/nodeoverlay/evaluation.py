"""Evaluates NodeOverlays: validity, conflicts, changes of instance types.

The rules are those of the reference (`pkg/controllers/nodeoverlay`, v1.14):

* Overlays are taken by weight, the greatest first; equal weights by name, the last first.
* An overlay selects an instance type of a NodePool if the labels that a node would have (the pool's
  name, the labels of its template, those of the type) meet all its requirements, and if at least one
  offering, available or not, meets them too. A label that no such node has meets no requirement but
  NotIn and DoesNotExist.
* An overlay conflicts if an accepted one of equal weight changes the same price or the same resource,
  even to the same value. One conflict in one NodePool rejects it everywhere.
* Of accepted overlays the first one decides: the price of each offering, the amount of each resource.

Amounts of resources are compared among all accepted overlays of a weight; the reference compares with
the last one only, so that a third overlay repeats the first one's resource unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.api.labels import ALIASES, NODE_POOL
from karpenter_core.api.quantities import parse_resources
from karpenter_core.lifecycle.nodeoverlay.validation import node_fee, validate_overlay
from karpenter_core.lifecycle.nodepool.validation import LabelRules
from karpenter_core.scheduling.overlays import (
    OfferingOverlay,
    OverlayStore,
    PoolOverlays,
    TypeOverlay,
    make_pool_overlays,
)
from karpenter_core.scheduling.price_changes import PriceChange
from karpenter_core.scheduling.requirements import Requirement, Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.api.nodeoverlay import NodeOverlay
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.notices import ObjectRef
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import Catalogue
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "OverlayEvaluation",
    "OverlayPool",
    "evaluate_overlays",
    "in_order_of_weight",
    "listed_pools",
]

EVALUATION_STEP: Final = "the evaluation of NodeOverlays"
"""The step that errors of overlays which cannot be evaluated name."""


class OverlayPool(NamedTuple):
    """A NodePool and its catalogue as the provider listed it."""

    pool: NodePool
    catalogue: Catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayEvaluation:
    """The result of an evaluation: the changes, and the overlays that are not applied."""

    store: OverlayStore
    errors: Mapping[str, tuple[str, ...]]
    """The errors of invalid overlays, by name."""
    conflicts: Mapping[str, str]
    """The first conflict of each overlay that has one, by name, for logs and people."""


def in_order_of_weight(overlays: Iterable[NodeOverlay]) -> tuple[NodeOverlay, ...]:
    """Return overlays by weight, the greatest first; equal ones by name, the last first."""
    by_name = sorted(overlays, key=lambda overlay: overlay.name, reverse=True)
    return tuple(sorted(by_name, key=lambda overlay: -overlay.weight))


def listed_pools(snapshot: Snapshot) -> tuple[OverlayPool, ...]:
    """Return the NodePools of a snapshot that have a listing, by name."""
    return tuple(
        OverlayPool(pool, catalogue)
        for name, pool in sorted(snapshot.node_pools.items())
        if (catalogue := snapshot.listed_catalogues.get(name)) is not None
    )


def evaluate_overlays(
    overlays: Iterable[NodeOverlay],
    pools: Iterable[OverlayPool],
    *,
    rules: LabelRules | None,
) -> OverlayEvaluation:
    """Return what overlays change in the catalogues of these pools.

    `rules` are the core's and the providers' rules on labels. A pool whose instance types could not
    be listed is not among `pools`; it is evaluated when they are. An overlay with which the evaluation
    fails is not applied: without an evaluation no pool would have a catalogue.
    """
    rules = rules or LabelRules()
    failed = FailedJudgements()
    errors: dict[str, tuple[str, ...]] = {}
    valid: list[_ParsedOverlay] = []
    for overlay in in_order_of_weight(overlays):
        with failed.judging(overlay.ref, EVALUATION_STEP):
            if problems := validate_overlay(overlay, rules=rules):
                errors[overlay.name] = problems
            else:
                valid.append(_parse(overlay, rules))
    groups = tuple(_grouped(pools, valid).values())
    conflicts: dict[str, str] = {}
    for overlay in valid:
        with failed.judging(overlay.ref, EVALUATION_STEP):
            if conflict := _apply(overlay, groups, rules):
                conflicts[overlay.name] = conflict
    errors.update({each.regarding.name: (each.message,) for each in failed.found})
    stored: dict[str, PoolOverlays] = {}
    for group in groups:
        stored.update(dict.fromkeys(group.pools, group.result()))
    return OverlayEvaluation(store=OverlayStore(pools=stored), errors=errors, conflicts=conflicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParsedOverlay:
    ref: ObjectRef
    weight: int
    requirements: Requirements
    change: PriceChange | None
    fee_per_hour: float | None
    capacity: Mapping[str, int]

    @property
    def name(self) -> str:
        return self.ref.name


def _parse(overlay: NodeOverlay, rules: LabelRules) -> _ParsedOverlay:
    spec = overlay.spec
    text = spec.price_adjustment if spec.price is None else spec.price
    return _ParsedOverlay(
        ref=overlay.ref,
        weight=overlay.weight,
        requirements=Requirements.from_specs(
            (each.to_spec() for each in spec.requirements), aliases={**ALIASES, **rules.aliases}
        ),
        change=None if text is None else PriceChange.parse(text),
        fee_per_hour=node_fee(overlay),
        capacity=parse_resources(spec.capacity),
    )


def _apply(overlay: _ParsedOverlay, groups: Sequence[_PoolGroup], rules: LabelRules) -> str:
    """Accept an overlay in all pools, or return its first conflict."""
    selections = [group.selection(overlay, rules) for group in groups]
    for group, selected in zip(groups, selections, strict=True):
        if conflict := group.conflict(overlay, selected):
            return conflict
    for group, selected in zip(groups, selections, strict=True):
        group.accept(overlay, selected)
    return ""


class _Selection(NamedTuple):
    """An instance type that an overlay selects, and its offerings that meet the requirements."""

    name: str
    offerings: tuple[Requirements, ...]


_Projections: TypeAlias = "tuple[tuple[Requirement | None, ...], ...]"


def _grouped(
    pools: Iterable[OverlayPool], overlays: Sequence[_ParsedOverlay]
) -> dict[tuple[int, _Projections], _PoolGroup]:
    """Group the pools that all overlays judge alike: same catalogue, same labels as far as asked."""
    groups: dict[tuple[int, _Projections], _PoolGroup] = {}
    for pool, catalogue in pools:
        labels = Requirements(
            (
                Requirement.of(NODE_POOL, "In", (pool.name,)),
                *Requirements.from_labels(pool.spec.template.metadata.labels).values(),
            )
        )
        projections = tuple(
            tuple(labels.get(key) if key in labels else None for key in overlay.requirements)
            for overlay in overlays
        )
        key = id(catalogue), projections
        group = groups.get(key)
        if group is None:
            group = groups[key] = _PoolGroup(labels, catalogue.instance_types)
        group.pools.append(pool.name)
    return groups


@final
class _PoolGroup:
    """Pools with equal catalogues and labels, and what accepted overlays change in them."""

    def __init__(self, labels: Requirements, instance_types: Sequence[InstanceType]) -> None:
        self.pools: Final = list[str]()
        self._labels: Final = labels
        self._types: Final = instance_types
        self._keys_of_types: Final = frozenset(
            key for instance_type in instance_types for key in instance_type.requirements
        )
        self._prices: Final = dict[str, dict[Requirements, _ParsedOverlay]]()
        self._fees: Final = dict[str, dict[Requirements, list[_ParsedOverlay]]]()
        self._capacity: Final = dict[str, dict[str, int]]()
        self._priced_at: Final = dict[tuple[str, Requirements], _ParsedOverlay]()
        """The last accepted overlay of each price, which has the least weight so far."""
        self._sized_at: Final = dict[tuple[str, str], _ParsedOverlay]()
        """The same of each resource."""

    def selection(self, overlay: _ParsedOverlay, rules: LabelRules) -> list[_Selection]:
        """Return the instance types that an overlay selects, with their offerings."""
        if not self._may_describe(overlay.requirements):
            return []
        offered: dict[Requirements, bool] = {}
        selected: list[_Selection] = []
        for instance_type in self._types:
            if not self._describes(instance_type, overlay.requirements):
                continue
            found: list[Requirements] = []
            for offering in instance_type.offerings:
                sold_as = offering.requirements
                meets = offered.get(sold_as)
                if meets is None:
                    meets = offered[sold_as] = overlay.requirements.compatible(
                        sold_as, allow_undefined=rules.well_known
                    )
                if meets:
                    found.append(sold_as)
            if found:
                selected.append(_Selection(instance_type.name, tuple(dict.fromkeys(found))))
        return selected

    def _may_describe(self, asked: Requirements) -> bool:
        """Tell whether these pools meet the requirements on labels that no instance type has.

        Overlays of one pool are many where pools are, and there are a thousand instance types.
        """
        return all(
            self._labels.compatible(Requirements((requirement,)))
            for key, requirement in asked.items()
            if key in self._labels and key not in self._keys_of_types
        )

    def _describes(self, instance_type: InstanceType, asked: Requirements) -> bool:
        """Tell whether a node of this type in these pools meets all requirements."""
        of_type, of_pool = instance_type.requirements, self._labels
        for key, requirement in asked.items():
            if key not in of_pool:
                described = of_type
            elif key not in of_type:
                described = of_pool
            else:
                described = Requirements((of_pool.get(key), of_type.get(key)))
            if not described.compatible(Requirements((requirement,))):
                return False
        return True

    def conflict(self, overlay: _ParsedOverlay, selected: Sequence[_Selection]) -> str:
        """Return what an accepted overlay of equal weight changes already; empty if nothing."""
        where = f"NodePool {min(self.pools)}"
        for name, offerings in selected:
            if overlay.change is not None:
                for sold_as in offerings:
                    other = self._priced_at.get((name, sold_as))
                    if other is not None and other.weight == overlay.weight:
                        return f'"{other.name}" changes the price of {name} ({sold_as}) in {where}'
            for resource in overlay.capacity:
                other = self._sized_at.get((name, resource))
                if other is not None and other.weight == overlay.weight:
                    return f'"{other.name}" sets {resource} of {name} in {where}'
        return ""

    def accept(self, overlay: _ParsedOverlay, selected: Sequence[_Selection]) -> None:
        """Apply an overlay that has no conflict, as far as no earlier one decided."""
        for name, offerings in selected:
            for sold_as in offerings:
                if overlay.change is not None:
                    self._prices.setdefault(name, {}).setdefault(sold_as, overlay)
                    self._priced_at[name, sold_as] = overlay
                if overlay.fee_per_hour is not None:
                    self._fees.setdefault(name, {}).setdefault(sold_as, []).append(overlay)
            for resource, amount in overlay.capacity.items():
                self._capacity.setdefault(name, {}).setdefault(resource, amount)
                self._sized_at[name, resource] = overlay

    def result(self) -> PoolOverlays:
        """Return the changes."""
        names = {**self._prices, **self._fees, **self._capacity}
        return make_pool_overlays({name: self._changes_of(name) for name in sorted(names)})

    def _changes_of(self, name: str) -> TypeOverlay:
        prices, fees = self._prices.get(name, {}), self._fees.get(name, {})
        changes: dict[Requirements, OfferingOverlay] = {}
        for sold_as in {**prices, **fees}:
            priced, adding = prices.get(sold_as), fees.get(sold_as, ())
            changes[sold_as] = OfferingOverlay(
                change=None if priced is None else priced.change,
                changed_by="" if priced is None else priced.name,
                fee_per_hour=fsum(each.fee_per_hour or 0.0 for each in adding),
                fee_by=tuple(each.name for each in adding),
            )
        return TypeOverlay(offerings=changes, capacity=self._capacity.get(name, {}))
