"""Applies price and risk adjustments of other plug-ins to a catalogue.

Applied once when a catalogue is built, never per scheduling pass.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING, TypeVar

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import CatalogueOffering
from karpenter_core.provider.host.catalogue_check import price_problem
from karpenter_core.provider.host.hooks import ADJUST_PRICES, RATE_RISK, OfferingArguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.prices import Price
    from karpenter_core.provider.host.dispatch import Dispatcher
    from karpenter_core.provider.host.hooks import Hook
    from karpenter_core.scheduling.instance_types import InstanceType, Offering

__all__ = ["adjust_catalogue"]

T = TypeVar("T")


async def adjust_catalogue(
    instance_types: tuple[InstanceType, ...],
    *,
    provider: str,
    dispatcher: Dispatcher,
) -> tuple[InstanceType, ...]:
    """Return the catalogue with the prices and risks that plug-ins give it.

    Raises:
        CloudProviderError: a plug-in failed or answered nonsense; the catalogue is not to be used.
    """
    pricing, rating = dispatcher.implementers(ADJUST_PRICES), dispatcher.implementers(RATE_RISK)
    if not pricing and not rating:
        return instance_types
    lines = [
        CatalogueOffering(provider=provider, instance_type=it, offering=offering)
        for it in instance_types
        for offering in it.offerings
    ]
    for name in pricing:
        prices = await _ask(dispatcher, ADJUST_PRICES, name, lines)
        lines = [_with_price(line, price, name) for line, price in zip(lines, prices, strict=True)]
    for name in rating:
        risks = await _ask(dispatcher, RATE_RISK, name, lines)
        lines = [_with_risk(line, risk, name) for line, risk in zip(lines, risks, strict=True)]
    return _with_offerings(instance_types, lines)


async def _ask(
    dispatcher: Dispatcher,
    hook: Hook[OfferingArguments, tuple[T | None, ...] | None],
    name: str,
    lines: list[CatalogueOffering],
) -> Sequence[T | None]:
    answers = await dispatcher.ask(hook, name, OfferingArguments(offerings=tuple(lines)))
    return [None] * len(lines) if answers is None else answers


def _with_price(line: CatalogueOffering, price: Price | None, name: str) -> CatalogueOffering:
    if price is None:
        return line
    if problem := price_problem(price):
        raise CloudProviderError(
            f'plug-in "{name}": {ADJUST_PRICES.name}: instance type "{line.instance_type.name}": {problem}'
        )
    offering = line.offering
    if price == offering.price:
        return line
    sources = (*filter(None, (offering.price_source,)), f'plug-in "{name}"')
    changed = replace(
        offering,
        price=price,
        list_price=offering.list_price or offering.price,
        price_source=", ".join(sources),
    )
    return replace(line, offering=changed)


def _with_risk(line: CatalogueOffering, risk: float | None, name: str) -> CatalogueOffering:
    if risk is None:
        return line
    if not 0 <= risk <= 1:
        raise CloudProviderError(
            f'plug-in "{name}": {RATE_RISK.name} rated {line.instance_type.name} with {risk}, '
            "which is not between 0 and 1"
        )
    highest = max(line.offering.interruption_risk, float(risk))
    return replace(line, offering=replace(line.offering, interruption_risk=highest))


def _with_offerings(
    instance_types: tuple[InstanceType, ...], lines: list[CatalogueOffering]
) -> tuple[InstanceType, ...]:
    offerings: defaultdict[int, list[Offering]] = defaultdict(list)
    for line in lines:
        offerings[id(line.instance_type)].append(line.offering)
    return tuple(
        it
        if all(map(is_, it.offerings, offerings[id(it)]))
        else replace(it, offerings=tuple(offerings[id(it)]))
        for it in instance_types
    )
