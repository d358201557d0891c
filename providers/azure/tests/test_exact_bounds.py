"""Limits, sizes and ages are decided exactly at their bound."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.errors import CloudProviderError, NodeClassNotReadyError
from karpenter_core.testing.builders import EPOCH
from karpenter_provider_azure.arm import credentials
from karpenter_provider_azure.arm.client import operation_class
from karpenter_provider_azure.bootstrap import custom_data, node_software
from karpenter_provider_azure.bootstrap.node_software import component_urls
from karpenter_provider_azure.catalogue import price_reader
from karpenter_provider_azure.catalogue.price_reader import RetailPriceList
from karpenter_provider_azure.catalogue.quotas import (
    _SHOWN,
    QUOTA_LIFE,
    Quota,
    RegionQuotas,
    exhausted_quotas,
)
from karpenter_provider_azure.catalogue.vm_sizes import _ephemeral_disks
from karpenter_provider_azure.launch.extensions import (
    _LOOKED_FOR_EVERY,
    _NEW_WITHIN,
    ExtensionInstaller,
)
from karpenter_provider_azure.launch.failed_launches import _LAUNCHES_WITHIN, FailedLaunches
from karpenter_provider_azure.launch.image_tokens import ImageTokens, _instant
from karpenter_provider_azure.settings import _LONGEST_TAG_KEY, _LONGEST_TAG_VALUE, parse_tags

SECOND = timedelta(seconds=1)
CLOCK = SimpleNamespace(now=lambda: EPOCH, monotonic=lambda: 1000.0)
VM = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines"


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", VM, "compute-list-vms"),
        ("GET", f"{VM}/web", "compute-get-vm"),
        ("PUT", f"{VM}/web", "compute-put-vm"),
        ("DELETE", f"{VM}/web", "compute-delete-vm"),
        ("PATCH", f"{VM}/web", "compute-update-vm"),
        ("PUT", f"{VM}/web/extensions", "compute-update-vm"),
        ("PUT", f"{VM}/web/extensions/billing", "compute-update-vm"),
        ("DELETE", f"{VM}/web/extensions/billing", "compute-update-vm"),
    ],
)
def test_changes_of_a_part_update_its_virtual_machine(method, path, kind):
    assert operation_class(method, path) == kind


@pytest.mark.parametrize(("more", "end"), [(0, "x"), (1, "…")])
def test_a_reason_of_the_longest_length_is_whole(more, end):
    text = "x" * (credentials._LONGEST_REASON + more)
    shown = credentials._one_line(text)
    assert shown == "x" * credentials._LONGEST_REASON + ("…" if more else "")
    assert shown[-1] == end


@pytest.mark.parametrize(("size", "is_refused"), [(10, False), (11, True)])
def test_custom_data_as_large_as_azure_takes_is_accepted(monkeypatch, size, is_refused):
    monkeypatch.setattr(custom_data, "LARGEST_BYTES", 10)
    monkeypatch.setattr(custom_data, "script_variables", lambda _boot: {})
    monkeypatch.setattr(custom_data, "shell_script", lambda _variables: "x" * size)
    boot = SimpleNamespace(target=SimpleNamespace(node_claim=SimpleNamespace(name="web")))
    with pytest.raises(NodeClassNotReadyError) if is_refused else nullcontext():
        assert custom_data.custom_data(boot)


@pytest.mark.parametrize(("less", "has_one"), [(0, True), (1, False)])
def test_credential_providers_are_downloaded_since_their_version(less, has_one):
    since = node_software._CREDENTIAL_PROVIDER_SINCE
    version = type(since)(since.major, since.minor - less, since.patch)
    urls = component_urls(version, "amd64", release="1.30.1")
    assert (len([url for url in urls.values() if "credential-provider" in url]) == 1) is has_one


@pytest.mark.parametrize(("pages", "is_refused"), [(1, False), (2, True)])
def test_a_list_of_prices_has_fewer_pages_than_the_bound(monkeypatch, pages, is_refused):
    monkeypatch.setattr(price_reader, "MOST_PAGES", 2)
    answers = [
        {"Items": [{"n": number}], "NextPageLink": "https://next"} for number in range(pages)
    ]
    answers[-1]["NextPageLink"] = ""
    service = SimpleNamespace(get=lambda *_, **__: answers.pop(0))
    reader = SimpleNamespace(
        _service=service,
        _first_page=lambda region: region,
        _next_page=lambda answer: answer["NextPageLink"],
    )
    with pytest.raises(CloudProviderError, match="more than 2") if is_refused else nullcontext():
        assert len(RetailPriceList.items(reader, "westeurope")) == pages


@pytest.mark.parametrize(("later", "is_current"), [(0, True), (1, False)])
def test_quotas_are_used_for_their_time(later, is_current):
    replaced = []
    ledger = SimpleNamespace(
        _read_at=0.0,
        _replace=lambda *, quotas: replaced.append(quotas),
        _drop_expired=lambda _now: None,
        _snapshot="snapshot",
    )
    assert RegionQuotas._current(ledger, QUOTA_LIFE.total_seconds() + later) == "snapshot"
    assert replaced == ([] if is_current else [{}])


def test_a_family_of_one_core_is_used_up_with_it():
    def named(*used_up):
        free = {"free0family": Quota(10, 0)}
        return exhausted_quotas({**{name: Quota(1, 1) for name in used_up}, **free})

    assert not named()
    families = [f"standard{number}family" for number in range(_SHOWN + 1)]
    (found,) = named(*families[:_SHOWN])
    assert found.text.startswith(f"vCPUs of {', '.join(families[:_SHOWN])}: no")
    (found,) = named(*families)
    assert " and 1 others: no" in found.text


def test_a_disk_of_any_size_is_one():
    found = _ephemeral_disks(
        {"ephemeralosdisksupported": "True", "cacheddiskbytes": "1", "maxresourcevolumemb": "0"},
    )
    assert [disk.size_bytes for disk in found] == [1]


@pytest.mark.parametrize(
    ("created", "listed_at", "is_possible"),
    [
        (EPOCH - _NEW_WITHIN, 1000.0, False),
        (EPOCH - _NEW_WITHIN + SECOND, 1000.0, True),
        (None, 1000.0, True),
        (EPOCH - _NEW_WITHIN, None, True),
        (EPOCH - _NEW_WITHIN, 1000.0 - _LOOKED_FOR_EVERY.total_seconds(), True),
    ],
)
def test_extensions_of_old_claims_are_looked_for_seldom(created, listed_at, is_possible):
    installer = SimpleNamespace(_listed_at=listed_at, _clock=CLOCK)
    claim = SimpleNamespace(metadata=SimpleNamespace(creation_timestamp=created))
    assert ExtensionInstaller._may_be_missing(installer, [claim]) is is_possible


@pytest.mark.parametrize(
    ("at", "is_old"),
    [(EPOCH - _LAUNCHES_WITHIN, False), (EPOCH - _LAUNCHES_WITHIN - SECOND, True), (None, True)],
)
def test_a_launch_is_old_after_its_time(at, is_old):
    launches = SimpleNamespace(_clock=CLOCK)
    assert FailedLaunches._is_old(launches, SimpleNamespace(launched_at=at)) is is_old


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("0001-01-01T00:00:00Z", None),
        ("0002-01-01T00:00:00Z", datetime(2, 1, 1, tzinfo=UTC)),
        ("soon", None),
    ],
)
def test_the_year_one_is_no_instant(text, at):
    assert _instant(text) == at


@pytest.mark.parametrize(("later", "reads"), [(-SECOND, 1), (timedelta(0), 2)])
def test_a_token_is_renewed_at_its_time(later, reads):
    now, read = [EPOCH], []

    def answer():
        read.append(1)
        return {"accessToken": "t", "expiresOn": (EPOCH + timedelta(hours=1)).isoformat()}

    tokens = ImageTokens(SimpleNamespace(now=lambda: now[0]), answer)
    tokens.headers()
    now[0] = tokens._token.renewed_at + later
    tokens.headers()
    assert len(read) == reads


@pytest.mark.parametrize(
    ("key", "value", "is_good"),
    [
        (_LONGEST_TAG_KEY, _LONGEST_TAG_VALUE, True),
        (_LONGEST_TAG_KEY + 1, 1, False),
        (1, _LONGEST_TAG_VALUE + 1, False),
    ],
)
def test_tags_of_the_longest_length_are_accepted(key, value, is_good):
    tags, complaints = parse_tags(f"{'k' * key}={'v' * value}")
    assert (len(tags) == 1, complaints == []) == (is_good, is_good)
