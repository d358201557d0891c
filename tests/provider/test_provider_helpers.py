"""What the core ships so that no provider writes it again: amounts, texts, tags, caches, clean-up."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from math import inf
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import BadInputError, SettingsError
from karpenter_core.provider.catalogue import Price
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.kubelet_reserved import (
    eviction_threshold,
    eviction_threshold_of_field,
    reserved_amounts,
    reserved_by_brackets,
)
from karpenter_core.provider.kit.orphans import OrphanTracker
from karpenter_core.provider.kit.price_table import PriceKey, PriceTable
from karpenter_core.provider.kit.setting_values import duration_of, number_of
from karpenter_core.provider.kit.user_data import (
    SHELL_SCRIPT,
    UserDataPart,
    mime_archive,
    user_data_parts,
)
from tests.properties import with_examples

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MI = 2**20
GI = 2**30

# -- amounts

AWS_CPU = [(1000, 0.06), (2000, 0.01), (4000, 0.005), (inf, 0.0025)]
AZURE_CPU = [(1, 0.06), (2, 0.04), (4, 0.02), (inf, 0.01)]
AZURE_MEMORY = [(4, 0.25), (8, 0.2), (16, 0.1), (128, 0.06), (inf, 0.02)]


@pytest.mark.parametrize(
    ("cores", "milli"), [(2, 70), (4, 80), (32, 150), (64, 230), (96, 310), (128, 390)]
)
def test_brackets_give_what_amazon_s_images_reserve(cores, milli):
    assert reserved_by_brackets(cores * 1000, AWS_CPU, whole_slices=True) == milli


@pytest.mark.parametrize(
    ("cores", "gib", "milli", "mib"), [(4, 7, 140, 1638), (2, 8, 100, 1843), (3, 64, 120, 5611)]
)
def test_brackets_give_what_azure_s_nodes_reserve(cores, gib, milli, mib):
    assert int(1000 * reserved_by_brackets(cores, AZURE_CPU) + 1e-9) == milli
    assert int(1024 * reserved_by_brackets(gib, AZURE_MEMORY)) == mib


@given(st.floats(0, 1e6), st.floats(0, 1e6))
@with_examples(100)
def test_a_larger_instance_never_reserves_less(one, other):
    small, large = sorted((one, other))
    assert reserved_by_brackets(small, AWS_CPU) <= reserved_by_brackets(large, AWS_CPU)


def test_brackets_must_rise():
    with pytest.raises(ValueError, match="the bound 1 does not lie above 2"):
        reserved_by_brackets(5, [(2, 0.1), (1, 0.1)])


@pytest.mark.parametrize(
    ("text", "kept"),
    [("5%", 50), ("0.15%", 2), ("100%", 0), ("0%", 0), ("100Mi", 100 * MI), ("1Gi", GI)],
)
def test_an_eviction_threshold_is_a_share_or_a_quantity(text, kept):
    assert eviction_threshold(text, 1000) == kept


@pytest.mark.parametrize("text", ["101%", "-1%", "-1Mi", "abc", "abc%", "nan%"])
def test_an_eviction_threshold_that_means_nothing_is_refused(text):
    with pytest.raises(ValueError, match=f'"{text}"'):
        eviction_threshold(text, 1000)


def test_reservations_of_the_user_count_for_requestable_resources():
    quantities = {"memory": "1Gi", "cpu": "100m", "pid": "1000"}

    assert reserved_amounts(quantities, field="spec.kubelet.kubeReserved") == {
        "cpu": 100,
        "memory": GI,
    }


def test_an_invalid_reservation_is_refused_by_field_and_value():
    with pytest.raises(ValueError, match=r'^spec\.x\.kubeReserved\.cpu: .*"much"'):
        reserved_amounts({"cpu": "much"}, field="spec.x.kubeReserved")
    with pytest.raises(ValueError, match=r'^spec\.x\.evictionHard: .*"101%"'):
        eviction_threshold_of_field("101%", 1000, field="spec.x.evictionHard")
    assert eviction_threshold_of_field("5%", 1000, field="spec.x.evictionHard") == 50


# -- settings


def test_a_setting_of_another_type_is_refused_by_flag_and_value():
    """As a plug-in might declare it that shares the setting."""
    context = SimpleNamespace(settings={"qps": 2.5, "on": True, "period": MINUTE})

    assert number_of(context, "qps") == 2.5
    assert duration_of(context, "period") == MINUTE
    with pytest.raises(SettingsError, match="--on: must be a number, not True"):
        number_of(context, "on")
    with pytest.raises(SettingsError, match=r"--qps: must be a duration, not 2\.5"):
        duration_of(context, "qps")


# -- user data


def test_a_script_becomes_one_part():
    assert user_data_parts("#!/bin/sh\r\necho hello\r\n") == (
        UserDataPart(content_type=SHELL_SCRIPT, content="#!/bin/sh\necho hello\n"),
    )
    assert user_data_parts(" \n") == ()


def test_an_archive_is_written_to_the_byte():
    parts = user_data_parts("echo 1") + user_data_parts("a: 1", content_type="text/cloud-config")
    assert mime_archive(parts) == (
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n'
        '--//\nContent-Type: text/x-shellscript; charset="us-ascii"\n\necho 1\n'
        "--//\nContent-Type: text/cloud-config\n\na: 1\n--//--\n"
    )


lines = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=20).filter(
    lambda line: not line.startswith("--")
)
scripts = st.lists(lines, min_size=1, max_size=4).map("\n".join)


@given(st.lists(scripts, min_size=1, max_size=3))
@with_examples(100)
def test_an_archive_is_read_back_as_it_was_written(contents):
    parts = tuple(UserDataPart(content_type=SHELL_SCRIPT, content=text) for text in contents)
    assert user_data_parts(mime_archive(parts)) == parts


def test_parts_of_an_archive_may_be_encoded_and_need_not_be_ascii():
    plain = "Content-Type: text/x-shellscript\n\necho größer"
    encoded = "Content-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\nZWNobyBncsO2w59lcg=="
    for text in (plain, encoded):
        (part,) = user_data_parts(text)
        assert part.content == "echo größer"


def test_headers_of_a_user_data_part_are_kept():
    text = (
        'Content-Type: multipart/mixed; boundary="B"\nMIME-Version: 1.0\n\n'
        "--B\nMIME-Version: 1.0\nContent-Type: text/cloud-config\nMerge-Type: list(append)\n"
        "Content-Transfer-Encoding: 7bit\n\na: 1\n--B--\n"
    )
    (part,) = user_data_parts(text)
    assert part.headers == (("Merge-Type", "list(append)"),)
    assert "Content-Type: text/cloud-config\nMerge-Type: list(append)\n\na: 1" in mime_archive(
        [part]
    )


def test_an_archive_without_its_end_is_refused_by_field():
    text = mime_archive(user_data_parts("echo 1")).removesuffix("\n--//--\n")
    with pytest.raises(
        BadInputError,
        match=r"^spec\.userData is no MIME archive: .* not the corresponding close boundary",
    ):
        user_data_parts(text)


# -- the cache on disk


def test_a_cached_value_is_read_by_the_next_process_until_stale(tmp_path):
    DiskCache(tmp_path / "new", "types", version="1").write({"m5": [1, 2]}, now=NOW)
    cache = DiskCache(tmp_path / "new", "types", version="1")
    assert cache.read(now=NOW + MINUTE, max_age=MINUTE) == {"m5": [1, 2]}
    assert cache.read(now=NOW + 2 * MINUTE, max_age=MINUTE) is None
    assert DiskCache(tmp_path / "new", "types", version="2").read(now=NOW, max_age=MINUTE) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"version": "1", "written": "2030-01-01", "value": 1}']
)
def test_damaged_content_is_ignored(text, tmp_path):
    cache = DiskCache(tmp_path, "types", version="1")
    (tmp_path / "types.json").write_text(text)
    assert cache.read(now=NOW, max_age=MINUTE) is None


def test_a_disk_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    cache = DiskCache(tmp_path / "file", "types", version="1")
    cache.write({"m5": 1}, now=NOW)
    assert cache.read(now=NOW, max_age=MINUTE) is None


def test_nothing_but_the_value_is_left_on_disk(tmp_path):
    cache = DiskCache(tmp_path, "types", version="1")
    for number in range(3):
        cache.write(number, now=NOW)
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["value"] == 2


# -- prices

ANYWHERE = PriceKey("m5", "on-demand")
SPOT_A = PriceKey("m5", "spot", "a")


def test_prices_that_were_read_come_before_shipped_ones():
    book = PriceTable({ANYWHERE: Price(1.0), SPOT_A: Price(0.4)})
    assert book.update({ANYWHERE: Price(1.1)}, now=NOW)
    assert book.find("m5", "on-demand", zone="a") == Price(1.1)
    assert book.find("m5", "spot", zone="a") == Price(0.4)
    assert book.find("m5", "spot", zone="b") is None


def test_prices_absent_from_a_reading_are_kept():
    book = PriceTable({})
    book.update({ANYWHERE: Price(1.0), SPOT_A: Price(0.4)}, now=NOW)
    assert book.update({SPOT_A: Price(0.5)}, now=NOW)
    assert book.find("m5", "on-demand") == Price(1.0)
    assert not book.update({SPOT_A: Price(0.5)}, now=NOW)


def test_where_gaps_are_not_filled_shipped_prices_hold_until_the_first_reading():
    """A spot market that names no price for a zone has nothing there."""
    book = PriceTable({PriceKey("m5", "spot"): Price(1.0)}, fills_gaps=False)
    assert book.find("m5", "spot", zone="b") == Price(1.0)
    assert book.update({SPOT_A: Price(0.4)}, now=NOW)
    assert book.find("m5", "spot", zone="a") == Price(0.4)
    assert book.find("m5", "spot", zone="b") is None


def test_an_empty_price_list_is_taken_for_a_failure():
    book = PriceTable({ANYWHERE: Price(1.0)})
    assert not book.update({}, now=NOW)
    assert book.is_stale(now=NOW, after=MINUTE)
    book.update({ANYWHERE: Price(1.0)}, now=NOW)
    assert not book.is_stale(now=NOW + MINUTE, after=MINUTE)
    assert book.is_stale(now=NOW + 2 * MINUTE, after=MINUTE)


# -- clean-up


def test_an_entry_unused_for_a_while_is_removable():
    watch = OrphanTracker(grace=MINUTE)
    assert watch.deletable({"a", "b"}, {"a"}, complete=True, now=NOW) == ()
    assert watch.deletable({"a", "b"}, {"a"}, complete=True, now=NOW + MINUTE) == ("b",)


def test_an_entry_used_in_between_waits_again():
    watch = OrphanTracker(grace=MINUTE)
    watch.deletable({"a"}, set(), complete=True, now=NOW)
    watch.deletable({"a"}, {"a"}, complete=True, now=NOW + MINUTE)
    assert watch.deletable({"a"}, set(), complete=True, now=NOW + 1.5 * MINUTE) == ()


def test_a_partial_listing_removes_nothing():
    watch = OrphanTracker(grace=MINUTE)
    watch.deletable({"a"}, set(), complete=True, now=NOW)
    assert watch.deletable({"a"}, set(), complete=False, now=NOW + MINUTE) == ()
    assert watch.deletable({"a"}, set(), complete=True, now=NOW + MINUTE) == ("a",)


def test_suspiciously_many_are_kept_for_long():
    """A filter that matches nothing makes everything look unused; so does an emptied cluster."""
    names = {f"template-{n}" for n in range(30)}
    used = {f"template-{n}" for n in range(18)}
    watch = OrphanTracker(grace=MINUTE, share=0.5, floor=10)
    watch.deletable(names, set(), complete=True, now=NOW)
    assert watch.deletable(names, set(), complete=True, now=NOW + MINUTE) == ()
    assert len(watch.deletable(names, used, complete=True, now=NOW + MINUTE)) == 12
    assert len(watch.deletable(names, used, complete=True, now=NOW + 60 * MINUTE)) == 12


def test_all_of_many_go_at_last():
    names = {f"template-{n}" for n in range(30)}
    watch = OrphanTracker(grace=MINUTE, long_grace=30 * MINUTE)
    watch.deletable(names, set(), complete=True, now=NOW)
    assert watch.deletable(names, set(), complete=True, now=NOW + 29 * MINUTE) == ()
    assert watch.deletable(names, set(), complete=True, now=NOW + 30 * MINUTE) == tuple(
        sorted(names)
    )
