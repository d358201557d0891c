"""Reads the retail prices of a region from Azure's public price list.

The list needs no credentials. It has some dozens of pages for a region; prices of a list that ends
early are not used.
"""

from __future__ import annotations

from datetime import timedelta
from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple, cast, final
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.calls.pages import token_pages
from karpenter_provider_azure.catalogue.prices import ListedPrices
from karpenter_provider_azure.setting_specs import PRICING_URL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.disk_cache import DiskCache
    from karpenter_provider_azure.catalogue.prices import RegionPrices
    from karpenter_provider_azure.json_service import JsonService

__all__ = ["PRICE_PERIOD", "PriceReader", "RetailPriceList", "read_price_items"]

_UNIT: Final = "1 hour"
_KIND: Final = "consumption"
_CURRENCY: Final = "USD"
_PRODUCT: Final = "virtual machines"
_WINDOWS: Final = " windows"
_LOW_PRIORITY: Final = " low priority"
_SPOT: Final = " spot"


class _Choice(NamedTuple):
    """An item in the order of preference: the largest is chosen."""

    is_virtual_machine: bool
    """The product is named `Virtual Machines …`; others are cloud services or hosts."""
    effective_from: str
    negative_tier: float
    negative_price: float
    """Of items that differ in nothing else the cheapest is chosen."""


def read_price_items(items: Iterable[JsonMapping]) -> ListedPrices:
    """Return the prices of Linux virtual machines; a price that is not above zero is left out."""
    best: dict[tuple[str, bool], _Choice] = {}
    for item in items:
        name, choice = _text(item, "armSkuName"), _choice(item)
        if not name or choice is None:
            continue
        key = (name, _text(item, "skuName").lower().endswith(_SPOT))
        if key not in best or choice > best[key]:
            best[key] = choice
    return ListedPrices(
        *(
            {
                name: -best[name, is_spot].negative_price
                for name, of in sorted(best)
                if of is is_spot
            }
            for is_spot in (False, True)
        )
    )


def _choice(item: JsonMapping) -> _Choice | None:
    product, meter = _text(item, "productName").lower(), _text(item, "meterName").lower()
    price = _number(item, "retailPrice")
    if (
        price is None
        or price <= 0
        or product.endswith(_WINDOWS)
        or meter.endswith(_LOW_PRIORITY)
        or _text(item, "unitOfMeasure").lower() not in {"", _UNIT}
        or _text(item, "type").lower() not in {"", _KIND}
        or _text(item, "currencyCode") not in {"", _CURRENCY}
    ):
        return None
    return _Choice(
        product.startswith(_PRODUCT),
        # Instants are all written alike, so texts are ordered as they are.
        _text(item, "effectiveStartDate"),
        -(_number(item, "tierMinimumUnits") or 0.0),
        -price,
    )


def _text(item: JsonMapping, field: str) -> str:
    value = item.get(field)
    return value.strip() if isinstance(value, str) else ""


def _number(item: JsonMapping, field: str) -> float | None:
    value = item.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) else None


PRICE_PERIOD: Final = timedelta(hours=12)
API_VERSION: Final = "2023-01-01-preview"
ACTION: Final = "retailPrices:list"

MOST_PAGES: Final = 1000


@final
class RetailPriceList:
    """The public price list; callable from any thread."""

    def __init__(self, service: JsonService, url: str = PRICING_URL) -> None:
        """`url` is the list's, without a query."""
        self._service: Final = service
        self._url: Final = url.rstrip("/")

    def items(self, region: str) -> list[JsonObject]:
        """Return all items of virtual machines in a region.

        Raises:
            CloudProviderError: a page could not be read, or the list does not end.
        """
        items: list[JsonObject] = []
        pages = token_pages(
            lambda link: self._service.get(link or self._first_page(region), action=ACTION),
            self._next_page,
            listing=ACTION,
            token_name="NextPageLink",  # noqa: S106 - no password
        )
        try:
            for count, page in enumerate(pages, start=1):
                items += _items(page)
                if count >= MOST_PAGES:
                    raise CloudProviderError(f"{ACTION}: the list has more than {count} pages")
        except RuntimeError as error:
            raise CloudProviderError(str(error)) from error
        return items

    def _first_page(self, region: str) -> str:
        conditions = {
            "priceType": "Consumption",
            "currencyCode": "USD",
            "serviceFamily": "Compute",
            "serviceName": "Virtual Machines",
            "armRegionName": region.lower(),
        }
        chosen = " and ".join(f"{field} eq '{value}'" for field, value in conditions.items())
        query = urlencode({"api-version": API_VERSION, "$filter": chosen}, quote_via=quote)
        return f"{self._url}?{query}"

    def _next_page(self, page: JsonMapping) -> str | None:
        link: object = page.get("NextPageLink")
        if not isinstance(link, str) or not link:
            return None
        if _origin(urlsplit(link)) != _origin(urlsplit(self._url)):
            raise CloudProviderError(f'{ACTION}: the next page "{link}" is not of {self._url}')
        return link


@final
class PriceReader:
    """Reads into `RegionPrices`; one thread at a time."""

    def __init__(
        self,
        region: str,
        prices: RegionPrices,
        clock: Clock,
        *,
        items: Callable[[str], Sequence[JsonMapping]] | None,
        disk: DiskCache,
    ) -> None:
        """`items` is `RetailPriceList.items`; None in a cloud without a public price list."""
        self._region: Final = region
        self._prices: Final = prices
        self._clock: Final = clock
        self._items: Final = items
        self._disk: Final = disk

    def refresh(self) -> bool:
        """Read the price list; return True if a price is different.

        Raises:
            CloudProviderError: the list could not be read as a whole; all prices stay.
        """
        if self._items is None:
            return False
        listed = read_price_items(self._items(self._region))
        now = self._clock.now()
        if not listed.on_demand and not listed.spot:
            raise CloudProviderError(f"{ACTION}: no prices for region {self._region}")
        changed = self._prices.update(listed, now=now)
        self._prices.save(self._disk, now=now)
        return changed


def _items(page: JsonMapping) -> Iterator[JsonObject]:
    items: object = page.get("Items")
    if not isinstance(items, list):
        raise CloudProviderError(f"{ACTION}: a page has no list `Items`")
    yield from (
        cast("JsonObject", item) for item in cast("list[object]", items) if isinstance(item, dict)
    )


def _origin(url: SplitResult) -> tuple[str, str, int]:
    """Return scheme, host and port; links name the default port, too."""
    default = 443 if url.scheme == "https" else 80
    return url.scheme, url.hostname or "", url.port or default
