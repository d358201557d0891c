"""Limits, sizes and ages are decided exactly at their bound."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import SPOT
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.api.disks import size_gib
from karpenter_provider_alibabacloud.catalogue import capacity, offerings
from karpenter_provider_alibabacloud.catalogue.capacity import (
    FEWEST_TERWAY_ADDRESSES,
    capacity_of,
    fits_network,
)
from karpenter_provider_alibabacloud.catalogue.instance_type_info import read_name
from karpenter_provider_alibabacloud.catalogue.region_types import fetch_region_types
from karpenter_provider_alibabacloud.catalogue.system_disks import IN_USE_LIFE, SystemDiskReader
from karpenter_provider_alibabacloud.codes import ErrorClass, classify
from karpenter_provider_alibabacloud.discovery.cluster import Cni
from karpenter_provider_alibabacloud.launch import preconditions
from karpenter_provider_alibabacloud.launch.preconditions import unmet_precondition
from karpenter_provider_alibabacloud.node_class import static_checks
from karpenter_provider_alibabacloud.node_class.static_checks import (
    MAX_USER_TAGS,
    tag_finding,
    user_data_finding,
)
from karpenter_provider_alibabacloud.price_reader import CONSIDERED_LIFE, PriceReader
from karpenter_provider_alibabacloud.prices import OnDemandQuote, _estimates
from providers.alibabacloud.tests.catalogue.instance_type_data import (
    REGION,
    A,
    SetClock,
    info,
    item,
    node_class,
)
from providers.alibabacloud.tests.catalogue.stubbed_clients import AnsweringClients
from providers.alibabacloud.tests.manual_clock import NOON

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(("text", "gib"), [("0", None), ("1", 20), ("20Gi", 20), ("21Gi", 21)])
def test_a_disk_of_any_size_has_twenty_gib_at_least(text, gib):
    assert size_gib(text) == gib


@pytest.mark.parametrize(("enis", "held"), [(1, {}), (2, {labels.ENI: 1})])
def test_a_node_without_spare_interfaces_has_no_resource_of_them(enis, held):
    made = info(EniQuantity=enis)
    amounts = capacity_of(made, pods=1, memory_bytes=1, ephemeral_storage_gib=1)
    assert {key: count for key, count in amounts.items() if key == labels.ENI} == held


@pytest.mark.parametrize(("more", "fits"), [(-1, False), (0, True)])
def test_a_type_needs_the_fewest_addresses_in_a_terway_cluster(monkeypatch, more, fits):
    addresses = FEWEST_TERWAY_ADDRESSES + more
    monkeypatch.setattr(capacity, "_terway_addresses", lambda _info: addresses)
    assert fits_network(info(), SimpleNamespace(cni=Cni.TERWAY_ENIIP)) is fits


@pytest.mark.parametrize(("ways", "kbps"), [((0, 0), 0), ((0, 1), 1), ((1, 2), 1)])
def test_the_bandwidth_is_the_smaller_known_rate(ways, kbps):
    made = info(InstanceBandwidthRx=ways[0], InstanceBandwidthTx=ways[1])
    assert made.bandwidth_kbps == kbps


@pytest.mark.parametrize(
    ("name", "family", "size"),
    [
        ("large", "ecs.u0", ""),
        ("ecs.large", "ecs.u0", "large"),
        ("ecs.large", "", ""),
        ("ecs.g7.large", "x", "large"),
        ("ecs.u0.c1m1.large", "ecs.u0", "large"),
    ],
)
def test_the_size_is_the_last_part_of_a_name_that_has_more(name, family, size):
    assert read_name(name, family=family).size == size


@pytest.mark.parametrize(("price", "is_available"), [(1.0, True), (1.1, False)])
def test_spot_at_exactly_the_price_limit_is_bought(monkeypatch, price, is_available):
    monkeypatch.setattr(offerings, "_is_short", lambda *_: False)
    sold = SimpleNamespace(
        info=info(),
        spot_hours=1,
        spot_price_limit=1.0,
        has_image=True,
        spot=[SimpleNamespace(zone=A)],
    )
    market = SimpleNamespace(
        stock=SimpleNamespace(spot_zones=lambda _name, _hours: (A,)),
        prices=SimpleNamespace(spot=lambda *_, hours: SimpleNamespace(amount=price)),
        shortages=None,
    )
    (row,) = offerings._spot(sold, market)
    assert (row.capacity_type, row.available) == (SPOT, is_available)


def test_the_smallest_types_are_types():
    def listed(*items):
        answer = {"InstanceTypes": {"InstanceType": list(items)}}
        clients = AnsweringClients(REGION, DescribeInstanceTypes=lambda _parameters: answer)
        return list(fetch_region_types(clients).value)

    small = item("ecs.g7.tiny", CpuCoreCount=1, MemorySize=1 / 1024)
    none = [item("ecs.a.a", CpuCoreCount=0), item("ecs.b.b", MemorySize=0)]
    assert listed(small, *none) == ["ecs.g7.tiny"]


@pytest.mark.parametrize(("later", "is_used"), [(timedelta(0), True), (SECOND, False)])
def test_a_type_is_in_use_for_its_time(later, is_used):
    clock = SetClock()
    asked = []
    reader = SimpleNamespace(
        _clock=clock,
        _lock=nullcontext(),
        _used_at={"ecs.g7.large": clock.now() - IN_USE_LIFE - later},
        _answers=SimpleNamespace(items=dict),
        _ask=asked.extend,
    )
    SystemDiskReader.refresh(reader)
    assert asked == (["ecs.g7.large"] if is_used else [])


@pytest.mark.parametrize(("later", "is_kept"), [(timedelta(0), True), (SECOND, False)])
def test_a_type_is_considered_for_its_time(later, is_kept):
    clock = SetClock()
    reader = SimpleNamespace(
        _clock=clock,
        _lock=nullcontext(),
        _considered={"ecs.g7.large": clock.now() - CONSIDERED_LIFE - later},
    )
    found = PriceReader._considered_now(reader, {"ecs.g7.large": info()})
    assert found == (("ecs.g7.large",) if is_kept else ())


@pytest.mark.parametrize(
    ("status", "kind"), [(499, ErrorClass.UNKNOWN), (500, ErrorClass.TRANSIENT)]
)
def test_errors_of_the_server_begin_at_500(status, kind):
    assert classify("Strange", status=status, message="") is kind


@pytest.mark.parametrize(("more", "is_refused"), [(0, False), (1, True)])
def test_as_many_tags_as_fit_beside_ours_are_accepted(monkeypatch, more, is_refused):
    monkeypatch.setattr(preconditions, "not_ready_error", lambda _node_class: None)
    tags = {f"team-{number}": "web" for number in range(MAX_USER_TAGS + more)}
    made = node_class({"tags": tags})
    assert (unmet_precondition(made) is not None) is is_refused
    assert (tag_finding(made) is not None) is is_refused


@pytest.mark.parametrize(("more", "is_refused"), [(0, False), (1, True)])
def test_user_data_as_large_as_ecs_takes_is_accepted(monkeypatch, more, is_refused):
    text = "#!/bin/sh\n"
    monkeypatch.setattr(static_checks, "LARGEST_BYTES", len(text))
    made = node_class({"userData": text + "x" * more})
    assert (user_data_finding(made) is not None) is is_refused


def test_a_type_without_a_price_by_rates_is_no_measure_for_others():
    def quote(amount, by_rates):
        return OnDemandQuote(amount, "ecs.g7", 2, by_rates, NOON)

    quotes = {"a": quote(1.0, 0.0), "b": quote(1.0, 0.5)}
    assert _estimates(quotes)[1] == 2.0
