"""Tests prices: read, given, estimated and cached (cases 44 and 45)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from karpenter_core.errors import SettingsError
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_provider_alibabacloud import data
from karpenter_provider_alibabacloud.data import shipped_prices, shipped_rates
from karpenter_provider_alibabacloud.price_file import read_price_file
from karpenter_provider_alibabacloud.prices import (
    DISK_VERSION,
    ON_DEMAND_LIFE,
    SPOT_LIFE,
    RegionPrices,
    SpotAdvice,
    SpotQuote,
    UserPrices,
    quote_of,
)
from providers.alibabacloud.tests.catalogue.instance_type_data import NOW, REGION, A, B, C, info

if TYPE_CHECKING:
    from pathlib import Path

LARGE, XLARGE = "ecs.g7.large", "ecs.g7.xlarge"


def prices(amounts: dict[str, float] | None = None, *, currency: str = "CNY") -> RegionPrices:
    made = RegionPrices(REGION)
    take(made, amounts or {}, currency=currency)
    return made


def take(made: RegionPrices, amounts: dict[str, float], *, currency: str = "CNY") -> None:
    quotes = {name: quote_of(info(name), amount, now=NOW) for name, amount in amounts.items()}
    made.update_on_demand(quotes, currency=currency)


def spot(made: RegionPrices, name: str, by_zone: dict[str, float], *, hours: int = 1) -> None:
    made.update_spot({name: SpotQuote(by_zone, NOW)}, currency="CNY", hours=hours)


def on_demand(made: RegionPrices, name: str) -> float:
    return made.on_demand(info(name)).amount


def test_a_missing_price_is_estimated_from_cpu_memory_and_gpus():
    made = RegionPrices(REGION)

    # 4 cores and 16 GiB
    assert on_demand(made, XLARGE) == pytest.approx(4 * 0.1764 + 16 * 0.0221)
    assert on_demand(made, "ecs.gn7i-c8g1.2xlarge") > 5 * on_demand(made, XLARGE)
    assert made.is_estimated(XLARGE)
    assert made.currency == made.on_demand(info()).currency == "CNY"


def test_special_instance_types_are_not_estimated_as_cheap():
    made = RegionPrices(REGION)
    plain = on_demand(made, XLARGE)

    with_disks = made.on_demand(info(XLARGE, LocalStorageAmount=1, LocalStorageCapacity=894))
    whole_server = made.on_demand(info(XLARGE, InstanceTypeId="ecs.ebmg7.xlarge"))
    assert with_disks.amount == whole_server.amount == pytest.approx(1.5 * plain)


def test_an_unpriced_type_is_estimated_from_its_family():
    """Case 45."""
    made = prices({LARGE: 0.5, "ecs.r7.large": 4.0})

    assert on_demand(made, XLARGE) == pytest.approx(1.0)
    assert made.is_estimated(XLARGE)
    assert not made.is_estimated(LARGE)


def test_rates_of_the_region_scale_an_unpriced_family():
    """Case 45."""
    rates = shipped_rates()
    made = prices({LARGE: 2 * rates.price_of(info(LARGE))})

    expected = 2 * rates.price_of(info("ecs.c7.large"))
    assert on_demand(made, "ecs.c7.large") == pytest.approx(expected)


def test_the_median_counts():
    rates = shipped_rates()
    names = (LARGE, "ecs.c7.large", "ecs.r7.large")
    amounts = {n: f * rates.price_of(info(n)) for n, f in zip(names, (1, 2, 900), strict=True)}
    made = prices(amounts)

    expected = 2 * rates.price_of(info("ecs.g8y.large"))
    assert on_demand(made, "ecs.g8y.large") == pytest.approx(expected)


@pytest.mark.parametrize("amount", [0.0, -0.1, float("nan"), float("inf")])
def test_a_price_of_zero_or_less_is_ignored(amount: float):
    """Case 45."""
    made = prices({LARGE: 0.5})
    take(made, {LARGE: amount})
    spot(made, LARGE, {A: amount, B: 0.1})

    assert on_demand(made, LARGE) == 0.5
    assert made.is_estimated(LARGE, zone=A)
    assert made.spot(info(), B).amount == 0.1


def test_an_account_that_pays_in_another_currency_has_all_prices_in_it():
    made = prices({XLARGE: 1.0})
    take(made, {LARGE: 0.1}, currency="USD")

    assert made.currency == "USD"
    assert made.on_demand(info(LARGE)).currency == "USD"
    assert on_demand(made, XLARGE) == pytest.approx(0.2)
    assert made.is_estimated(XLARGE)


def test_a_zones_spot_price_is_the_one_that_was_read_there():
    made = prices({LARGE: 1.0})
    spot(made, LARGE, {A: 0.2, B: 0.3})

    assert made.spot(info(), A).amount == 0.2
    assert made.spot(info(), B).amount == 0.3
    assert not made.is_estimated(LARGE, zone=A)


def test_an_estimated_spot_price_is_never_below_a_read_price():
    made = prices({LARGE: 1.0})
    assert made.spot(info(), A).amount == 1.0

    spot(made, LARGE, {A: 0.2, B: 0.3})
    assert made.spot(info(), C).amount == 0.3
    made.update_advice({LARGE: {C: SpotAdvice(25.0)}})
    assert made.spot(info(), C).amount == pytest.approx(0.25)
    assert made.is_estimated(LARGE, zone=C)


def test_new_advice_for_one_of_several_types_is_a_new_revision():
    made = prices({LARGE: 1.0})
    first = {name: {A: SpotAdvice(20.0)} for name in (LARGE, "ecs.other.large")}
    made.update_advice(first)
    revision = made.revision
    made.update_advice(first)
    assert made.revision == revision
    made.update_advice({**first, LARGE: {A: SpotAdvice(30.0)}})
    assert made.revision == revision + 1


def test_a_new_price_of_one_of_several_types_is_a_new_revision():
    """On demand and as spot; the other one's is read again as it was."""
    made = prices({LARGE: 1.0, XLARGE: 2.0})
    quotes = {LARGE: SpotQuote({A: 0.1}, NOW), XLARGE: SpotQuote({A: 0.2}, NOW)}
    made.update_spot(quotes, currency="CNY", hours=1)
    revision = made.revision
    take(made, {LARGE: 1.0, XLARGE: 2.5})
    assert made.revision == revision + 1
    made.update_spot({**quotes, LARGE: SpotQuote({A: 0.15}, NOW)}, currency="CNY", hours=1)
    assert made.revision == revision + 2
    take(made, {LARGE: 1.0, XLARGE: 2.5})
    made.update_spot(quotes | {LARGE: SpotQuote({A: 0.15}, NOW)}, currency="CNY", hours=1)
    assert made.revision == revision + 2


def test_interruption_rates_are_those_that_were_read():
    made = prices({LARGE: 1.0})
    made.update_advice({LARGE: {A: SpotAdvice(20.0, 1.5), B: SpotAdvice(20.0)}})
    revision = made.revision

    assert made.interruption_percent(LARGE, A) == 1.5
    assert made.interruption_percent(LARGE, B) is None
    assert made.interruption_percent(LARGE, C) is None
    made.update_advice({LARGE: {A: SpotAdvice(20.0, 7.5)}})
    assert made.interruption_percent(LARGE, A) == 7.5
    assert made.revision == revision + 1, "zone B has no price any more"
    made.update_advice({LARGE: {A: SpotAdvice(20.0, 4.0)}})
    assert made.revision == revision + 1, "no price changed"


def test_each_protected_time_has_its_own_prices():
    made = prices({LARGE: 1.0})
    spot(made, LARGE, {A: 0.3})
    assert made.spot(info(), A, hours=0).amount == 0.3

    spot(made, LARGE, {A: 0.1}, hours=0)
    assert made.spot(info(), A, hours=0).amount == 0.1
    assert made.spot(info(), A).amount == 0.3


def test_prices_of_the_user_come_first():
    made = prices({LARGE: 1.0})
    spot(made, LARGE, {A: 0.2})
    made.set_user_prices(UserPrices(on_demand={LARGE: 0.8}, spot={LARGE: {A: 0.15}}))

    assert on_demand(made, LARGE) == 0.8
    assert made.spot(info(), A).amount == 0.15
    assert not made.is_estimated(LARGE)
    made.set_user_prices(UserPrices())
    assert on_demand(made, LARGE) == 1.0


def test_the_revision_grows_when_a_price_changes_and_only_then():
    """Case 44."""
    made = prices({LARGE: 1.0})
    spot(made, LARGE, {A: 0.2})
    made.update_advice({LARGE: {A: SpotAdvice(20.0)}})
    made.set_user_prices(UserPrices(on_demand={XLARGE: 3.0}))
    revision = made.revision

    take(made, {LARGE: 1.0})
    spot(made, LARGE, {A: 0.2})
    made.update_advice({LARGE: {A: SpotAdvice(20.0)}})
    made.set_user_prices(UserPrices(on_demand={XLARGE: 3.0}))
    made.update_on_demand({}, currency="")
    assert made.revision == revision

    revisions = [revision]
    for change in (
        lambda: take(made, {LARGE: 1.1}),
        lambda: spot(made, LARGE, {A: 0.3}),
        lambda: spot(made, LARGE, {B: 0.3}),
        lambda: made.update_advice({LARGE: {A: SpotAdvice(21.0)}}),
        lambda: made.set_user_prices(UserPrices()),
    ):
        change()
        revisions.append(made.revision)
    assert revisions == sorted(set(revisions))


def test_the_same_amounts_in_another_currency_are_other_prices():
    made = prices({LARGE: 1.0})
    spot(made, LARGE, {A: 0.2})
    revision = made.revision

    take(made, {LARGE: 1.0}, currency="USD")

    assert made.revision > revision


@pytest.mark.parametrize("amount", [0.0, -1.0, float("nan")])
def test_an_answer_without_a_usable_price_takes_no_price_away(amount: float):
    """It has a currency all the same, and prices of another currency would be dropped for it."""
    made = prices({LARGE: 1.0})
    spot(made, LARGE, {A: 0.2})
    revision = made.revision

    take(made, {LARGE: amount}, currency="USD")
    made.update_spot({LARGE: SpotQuote({A: amount}, NOW)}, currency="USD")

    assert on_demand(made, LARGE) == 1.0
    assert made.spot(info(), A).amount == 0.2
    assert (made.currency, made.revision) == ("CNY", revision)


def test_read_prices_survive_the_process(tmp_path: Path):
    disk = DiskCache(tmp_path, "alibabacloud-prices-cn-hangzhou", version=DISK_VERSION)
    made = prices({LARGE: 0.1}, currency="USD")
    made.update_spot({LARGE: SpotQuote({A: 0.02}, NOW)}, currency="USD")
    made.update_spot({LARGE: SpotQuote({A: 0.01}, NOW)}, currency="USD", hours=0)
    made.save(disk, now=NOW)
    restored = RegionPrices(REGION)
    restored.restore(disk, now=NOW + timedelta(hours=23))

    assert restored.currency == "USD"
    assert on_demand(restored, LARGE) == 0.1
    assert restored.spot(info(), A).amount == 0.02
    assert restored.spot(info(), A, hours=0).amount == 0.01
    assert restored.on_demand_read_at(LARGE) == restored.spot_read_at(LARGE, 1) == NOW


def test_old_prices_are_not_restored(tmp_path: Path):
    disk = DiskCache(tmp_path, "alibabacloud-prices-cn-hangzhou", version=DISK_VERSION)
    made = prices({LARGE: 0.1})
    spot(made, LARGE, {A: 0.02})
    made.save(disk, now=NOW)
    days_later, weeks_later = RegionPrices(REGION), RegionPrices(REGION)
    days_later.restore(disk, now=NOW + timedelta(days=2))
    weeks_later.restore(disk, now=NOW + timedelta(days=8))

    assert on_demand(days_later, LARGE) == 0.1
    assert days_later.spot(info(), A).amount == 0.1
    assert weeks_later.is_estimated(LARGE)


def test_prices_as_old_as_they_may_get_are_not_restored(tmp_path: Path):
    """They would be read again at once, and count as read until then."""
    disk = DiskCache(tmp_path, "alibabacloud-prices-cn-hangzhou", version=DISK_VERSION)
    made = prices({LARGE: 0.1})
    spot(made, LARGE, {A: 0.02})
    made.save(disk, now=NOW)
    a_spot_life_later, a_life_later = RegionPrices(REGION), RegionPrices(REGION)
    a_spot_life_later.restore(disk, now=NOW + SPOT_LIFE)
    made.save(disk, now=NOW + timedelta(minutes=1))
    a_life_later.restore(disk, now=NOW + ON_DEMAND_LIFE)

    assert a_spot_life_later.spot_read_at(LARGE, 1) is None
    assert a_life_later.on_demand_read_at(LARGE) is None


@pytest.mark.parametrize("value", ["nonsense", [], {"currency": 5}, {"spot": {"x": 1}}])
def test_a_damaged_cache_file_counts_as_missing(tmp_path: Path, value: object):
    disk = DiskCache(tmp_path, "alibabacloud-prices-cn-hangzhou", version=DISK_VERSION)
    disk.write(value, now=NOW)
    made = RegionPrices(REGION)
    made.restore(disk, now=NOW)

    assert made.is_estimated(LARGE)


def test_the_shipped_table_is_used_where_nothing_was_read(monkeypatch: pytest.MonkeyPatch):
    table = {
        "rates": data._table()["rates"],
        "regions": {"cn-somewhere": {"currency": "CNY", "prices": {LARGE: 0.7}}},
    }
    monkeypatch.setattr(data, "_table", lambda: table)
    shipped_prices.cache_clear()
    made = RegionPrices("cn-somewhere")

    assert on_demand(made, LARGE) == 0.7
    assert not made.is_estimated(LARGE)
    take(made, {XLARGE: 0.2}, currency="USD")
    assert on_demand(made, LARGE) == pytest.approx(0.1)
    shipped_prices.cache_clear()


def test_the_shipped_table_has_sound_rates_and_prices():
    rates = shipped_rates()

    assert rates.currency == "CNY"
    assert min(rates.vcpu, rates.memory_gib, rates.gpu_memory_gib) > 0
    assert rates.special_factor >= 1
    for region in data._table()["regions"].values():
        assert min(region["prices"].values()) > 0


def file(folder: Path, document: object) -> Path:
    path = folder / "prices.json"
    path.write_text(json.dumps(document))
    return path


def test_the_users_file_is_read_for_its_region(tmp_path: Path):
    document = {
        REGION: {LARGE: {"onDemand": 0.5, "spot": {A: 0.1}}, XLARGE: {"spot": {B: 1}}},
        "cn-beijing": {LARGE: {"onDemand": 9}},
    }

    assert read_price_file(file(tmp_path, document), REGION) == UserPrices(
        on_demand={LARGE: 0.5}, spot={LARGE: {A: 0.1}, XLARGE: {B: 1.0}}
    )
    elsewhere = read_price_file(file(tmp_path, document), "cn-qingdao")
    assert elsewhere == UserPrices()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "must be a mapping"),
        ({REGION: []}, "cn-hangzhou: must be a mapping"),
        ({REGION: {LARGE: 5}}, r"cn-hangzhou\.ecs\.g7\.large: must be a mapping, not 5"),
        ({REGION: {LARGE: {"onDemand": 0}}}, r"onDemand: must be a number above zero, not 0"),
        ({REGION: {LARGE: {"onDemand": True}}}, "onDemand: must be a number above zero, not True"),
        ({REGION: {LARGE: {"spot": {A: "x"}}}}, "spot.cn-hangzhou-a: must be a number above zero"),
    ],
)
def test_a_file_that_cannot_be_used_names_field_and_value(
    tmp_path: Path, document: object, said: str
):
    path = file(tmp_path, document)

    with pytest.raises(SettingsError, match=said) as raised:
        read_price_file(path, REGION)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("text", ["{", None])
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str | None):
    path = tmp_path / "prices.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(SettingsError, match="--price-file"):
        read_price_file(path, REGION)
