"""Reads the retail prices of a region from Azure's public price list.

The list needs no credentials. It has some dozens of pages for a region; prices of a list that ends
early are not used.
"""

from __future__ import annotations

import json
import ssl
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast, final
from urllib.error import HTTPError
from urllib.parse import SplitResult, quote, urlencode, urlsplit
from urllib.request import HTTPSHandler, Request, build_opener

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.calls.caller import CloudCaller
from karpenter_core.provider.kit.calls.http_failures import http_failure
from karpenter_core.provider.kit.calls.pages import token_pages
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_provider_azure.price_items import read_price_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.calls.caller import AttemptObserver
    from karpenter_core.provider.kit.calls.failures import AttemptFailure
    from karpenter_core.provider.kit.disk_cache import DiskCache
    from karpenter_provider_azure.prices import RegionPrices

__all__ = ["PRICE_PERIOD", "PRICE_URL", "PriceReader", "RetailPriceList"]

PRICE_PERIOD: Final = timedelta(hours=12)
PRICE_URL: Final = "https://prices.azure.com"
API_VERSION: Final = "2023-01-01-preview"
ACTION: Final = "retailPrices:list"

TIMEOUT_SECONDS: Final = 20
MOST_PAGES: Final = 1000
_RETRIES: Final = RetryPolicy(throttled_attempts=3, transient_attempts=3)


class _PriceListError(Exception):
    """A request of the price list failed; status 0 is no answer."""

    def __init__(self, message: str, *, status: int, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.status: Final = status
        self.retry_after: Final = retry_after


@final
class RetailPriceList:
    """The public price list; callable from any thread."""

    def __init__(
        self,
        url: str = PRICE_URL,
        *,
        ca_bundle: str = "",
        observe: AttemptObserver | None = None,
        sleep: Callable[[float], None] = time.sleep,
        retries: RetryPolicy = _RETRIES,
    ) -> None:
        """`url` is the list's host; `ca_bundle` is a file of certificates, by default the system's."""
        self._url: Final = url.rstrip("/")
        self._opener: Final = build_opener(
            HTTPSHandler(context=ssl.create_default_context(cafile=ca_bundle or None))
        )
        self._caller: Final = CloudCaller(_failure, policy=retries, observe=observe, sleep=sleep)

    def items(self, region: str) -> list[JsonObject]:
        """Return all items of virtual machines in a region.

        Raises:
            CloudProviderError: a page could not be read, or the list does not end.
        """
        items: list[JsonObject] = []
        pages = token_pages(
            lambda link: self._page(link or self._first_page(region)),
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
        return f"{self._url}/api/retail/prices?{query}"

    def _next_page(self, page: JsonMapping) -> str | None:
        link: object = page.get("NextPageLink")
        if not isinstance(link, str) or not link:
            return None
        if _origin(urlsplit(link)) != _origin(urlsplit(self._url)):
            raise CloudProviderError(f'{ACTION}: the next page "{link}" is not of {self._url}')
        return link

    def _page(self, url: str) -> JsonObject:
        return self._caller.call(lambda: self._read(url), action=ACTION, operation_class=ACTION)

    def _read(self, url: str) -> JsonObject:
        request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - configured
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                page: object = json.load(answer)
        except HTTPError as error:
            with error:
                raise _PriceListError(
                    str(error.reason),
                    status=error.code,
                    retry_after=error.headers.get("Retry-After"),
                ) from error
        except (OSError, ValueError) as error:
            raise _PriceListError(str(error), status=0) from error
        if not isinstance(page, dict):
            raise _PriceListError("the answer is no JSON object", status=0)
        return cast("JsonObject", page)


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


def _failure(error: Exception) -> AttemptFailure | None:
    if not isinstance(error, _PriceListError):
        return None
    return http_failure(error.status, message=str(error), retry_after=error.retry_after)


def _origin(url: SplitResult) -> tuple[str, str, int]:
    """Return scheme, host and port; links name the default port, too."""
    default = 443 if url.scheme == "https" else 80
    return url.scheme, url.hostname or "", url.port or default
