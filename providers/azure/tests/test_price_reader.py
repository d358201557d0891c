"""Tests the reading of the retail price list over HTTP."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from karpenter_core.errors import CloudProviderError, ThrottledError
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_provider_azure.catalogue.price_reader import PriceReader, RetailPriceList
from karpenter_provider_azure.catalogue.prices import DISK_VERSION, RegionPrices
from karpenter_provider_azure.json_service import JsonService
from providers.azure.tests.catalogue.sku_items import SetClock
from providers.azure.tests.test_prices import D4, item

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

D8 = "Standard_D8s_v5"


class PriceServer:
    """A price list that answers with pages, or with a status."""

    def __init__(self) -> None:
        self.pages: list[Any] = []
        self.status = 200
        self.failures = 0
        """So many requests fail with 500 first."""
        self.requests: list[str] = []
        self.url = ""

    def page(self, number: int) -> Any:
        """Return a page, with a link to the next one if there is one."""
        page: Any = self.pages[number]
        if not hasattr(page, "items") or "NextPageLink" in page:
            return page
        more = number + 1 < len(self.pages)
        link = f"{self.url}/api/retail/prices?page={number + 1}" if more else None
        return {**page, "NextPageLink": link}


@pytest.fixture
def server() -> Iterator[PriceServer]:
    state = PriceServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(self.path)
            if state.failures or state.status != 200:
                state.failures = max(0, state.failures - 1)
                self.send_response(500 if state.status == 200 else state.status)
                if state.status == 429:
                    self.send_header("Retry-After", "3600")
                self.end_headers()
                return
            number = int(parse_qs(urlsplit(self.path).query).get("page", ["0"])[0])
            body = json.dumps(state.page(number)).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Write nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_port}"
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def prices() -> RegionPrices:
    return RegionPrices("westus2")


@pytest.fixture
def reader(server: PriceServer, prices: RegionPrices, tmp_path: Path) -> PriceReader:
    return PriceReader(
        "westus2",
        prices,
        SetClock(),
        items=price_list(server).items,
        disk=DiskCache(tmp_path, "azure-prices-westus2", version=DISK_VERSION),
    )


def price_list(server: PriceServer) -> RetailPriceList:
    return RetailPriceList(JsonService(sleep=lambda _: None), f"{server.url}/api/retail/prices")


def items(*found: dict[str, Any]) -> dict[str, Any]:
    return {"Items": list(found)}


def test_the_list_of_the_region_is_requested(server: PriceServer) -> None:
    server.pages = [items(item())]

    price_list(server).items("WestUS2")

    query = parse_qs(urlsplit(server.requests[0]).query)
    assert query["api-version"] == ["2023-01-01-preview"]
    assert query["$filter"] == [
        (
            "priceType eq 'Consumption' and currencyCode eq 'USD' and serviceFamily eq 'Compute' "
            "and serviceName eq 'Virtual Machines' and armRegionName eq 'westus2'"
        )
    ]


def test_pages_are_followed_to_the_last(
    server: PriceServer, reader: PriceReader, prices: RegionPrices
) -> None:
    server.pages = [  # case 51
        items(item(0.2)),
        items(item(0.4, armSkuName=D8)),
        items(item(0.05, skuName="D4s v5 Spot")),
    ]

    assert reader.refresh()
    assert prices.on_demand(D4).amount == 0.2
    assert prices.on_demand(D8).amount == 0.4
    assert prices.spot(D4).amount == 0.05
    assert len(server.requests) == 3


def test_prices_stay_when_the_list_cannot_be_read(
    server: PriceServer, reader: PriceReader, prices: RegionPrices
) -> None:
    server.pages = [items(item(0.2))]  # case 52
    reader.refresh()
    server.status = 503

    with pytest.raises(CloudProviderError, match="retailPrices:list"):
        reader.refresh()

    assert prices.on_demand(D4).amount == 0.2


def test_a_passing_fault_is_repeated(server: PriceServer, reader: PriceReader) -> None:
    server.pages = [items(item(0.2))]
    server.failures = 1

    assert reader.refresh()


def test_a_throttled_list_is_reported_as_throttled(server: PriceServer) -> None:
    server.status = 429

    with pytest.raises(ThrottledError):
        price_list(server).items("westus2")


def test_a_list_that_breaks_off_changes_nothing(
    server: PriceServer, reader: PriceReader, prices: RegionPrices
) -> None:
    before = prices.on_demand(D4)
    server.pages = [items(item(0.2)), {"error": "no items"}]

    with pytest.raises(CloudProviderError, match="Items"):
        reader.refresh()

    assert prices.on_demand(D4) == before


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("http://127.0.0.1:1/api/retail/prices", "is not of"),
        ("file:///etc/hostname", "is not of"),
        ("{url}/api/retail/prices?page=0", "came twice"),
    ],
)
def test_a_foreign_or_repeated_next_page_is_refused(
    server: PriceServer, link: str, complaint: str
) -> None:
    server.pages = [{"Items": [item()], "NextPageLink": link.format(url=server.url)}]

    with pytest.raises(CloudProviderError, match=complaint):
        price_list(server).items("westus2")


def test_a_list_without_prices_is_an_error(server: PriceServer, reader: PriceReader) -> None:
    server.pages = [items()]

    with pytest.raises(CloudProviderError, match="no prices for region westus2"):
        reader.refresh()


@pytest.mark.parametrize("page", [[], "text", 7])
def test_an_answer_that_is_no_object_is_no_answer(server: PriceServer, page: object) -> None:
    server.pages = [page]

    with pytest.raises(CloudProviderError, match="no JSON object"):
        price_list(server).items("westus2")


def test_a_cloud_without_a_price_list_gets_no_request(prices: RegionPrices, tmp_path: Path) -> None:
    reader = PriceReader(  # case 53
        "usgovvirginia",
        prices,
        SetClock(),
        items=None,
        disk=DiskCache(tmp_path, "azure-prices", version=DISK_VERSION),
    )

    assert not reader.refresh()


def test_prices_are_stored_for_the_next_process(
    server: PriceServer, reader: PriceReader, tmp_path: Path
) -> None:
    server.pages = [items(item(0.2))]
    reader.refresh()

    restored = RegionPrices("westus2")
    restored.restore(
        DiskCache(tmp_path, "azure-prices-westus2", version=DISK_VERSION), now=SetClock().now()
    )

    assert restored.on_demand(D4).amount == 0.2
