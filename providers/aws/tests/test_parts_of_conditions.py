"""Answers of which a part is missing, and rules of several parts: each part counts by itself."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    NODE_POOL,
    REGISTERED,
    RESERVED,
    ZONE,
)
from karpenter_core.errors import BadInputError
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node
from karpenter_provider_aws import labels
from karpenter_provider_aws.api.families import AmiFamily
from karpenter_provider_aws.capacity_type_sync import _is_reserved
from karpenter_provider_aws.catalogue.requirements import instance_labels
from karpenter_provider_aws.codes import is_instance_profile_missing, launch_failure
from karpenter_provider_aws.conversion.managed_node_groups import _has_interface
from karpenter_provider_aws.conversion.selectors import MAX_TERMS, _read, ami_terms, tag_terms
from karpenter_provider_aws.described_instances import CLAIM_TAGS, FOREIGN_MARKS, read_instance
from karpenter_provider_aws.discovery.images import minor_version
from karpenter_provider_aws.families.al2023 import _is_mapping
from karpenter_provider_aws.families.mime_parts import _headers, mime_parts
from karpenter_provider_aws.families.traits import TRAITS, _windows
from karpenter_provider_aws.interruption import shortages
from karpenter_provider_aws.interruption.blocks import _blocks_of_nodes
from karpenter_provider_aws.interruption.directory import _from_node, instance_id_of
from karpenter_provider_aws.interruption.shortages import InterruptionShortages
from karpenter_provider_aws.kubelet.expressions import kubelet_expressions
from karpenter_provider_aws.kubelet.fields import _is_number, _is_time
from karpenter_provider_aws.launch.template_groups import ClusterDetails
from karpenter_provider_aws.node_class.dry_runs import PASSED, dry_run_outcome
from karpenter_provider_aws.prices import read_products, read_spot_history
from karpenter_provider_aws.zonal_shift import NO_SHIFTS, ShiftedZones, ZonalShift, active_zone_ids
from providers.aws.tests.catalogue.recorded_region import info

INSTANCE = "aws:///eu-west-1a/i-1"


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({"storage_nvme": True, "storage_gb": 900}, "900"),
        ({"storage_nvme": False, "storage_gb": 900}, None),
        ({"storage_nvme": True, "storage_gb": None}, None),
    ],
)
def test_only_nvme_disks_of_a_known_size_have_a_label(fields, size):
    described = instance_labels(replace(info("m5.large"), **fields))
    assert described.get(labels.INSTANCE_LOCAL_NVME) == size


def test_a_missing_profile_has_this_code_and_this_text():
    text = "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
    assert is_instance_profile_missing("InvalidParameterValue", text)
    assert not is_instance_profile_missing("InvalidParameterValue", "another value is invalid")
    assert not is_instance_profile_missing("AnotherCode", text)


def test_a_code_stands_for_those_that_continue_it():
    for code in ("UnauthorizedOperation", "UnauthorizedOperation.Something"):
        assert launch_failure(code, "no").reason == launch_failure("AuthFailure", "no").reason
    assert launch_failure("UnauthorizedOperations", "no").reason == "LaunchFailed"


@pytest.mark.parametrize("selector", [None, [], "tags", {}])
def test_a_selector_without_tags_is_refused(selector):
    with pytest.raises(BadInputError):
        _read(selector, "subnetSelector")


def test_an_instance_without_a_tenancy_shares_its_host():
    assert read_instance({"Placement": {}}).tenancy == "default"
    assert read_instance({"Placement": {"Tenancy": "dedicated"}}).tenancy == "dedicated"


def test_tags_of_several_claims_name_claims():
    assert FOREIGN_MARKS.names_claim(CLAIM_TAGS.key)
    assert not FOREIGN_MARKS.names_claim("app")


@pytest.mark.parametrize(
    ("version", "minor"),
    [("v1.34.2-eks-1", "1.34"), ("1.34+", "1.34"), ("1", ""), ("x.34", ""), ("1.x", ""), ("", "")],
)
def test_a_minor_version_is_two_numbers(version, minor):
    assert minor_version(version) == minor


@pytest.mark.parametrize(
    ("text", "is_mapping"),
    [("a: 1", True), ("- a", False), ("", False), ("text", False), ("#!/bin/sh\na: 1", False)],
)
def test_only_a_mapping_is_a_document_of_settings(text, is_mapping):
    assert _is_mapping(text) is is_mapping


def test_a_header_may_be_folded_and_the_first_line_cannot_be():
    assert dict(_headers(["Content-Type: a;", "  b"]))["Content-Type"] == "a; b"
    assert dict(_headers([" folded", "Name: value"])) == {}


def of_node(provider_id=INSTANCE, **fields):
    return node("n", provider_id=provider_id, **fields)


def test_only_a_node_in_a_named_block_runs_in_one():
    def nodes(**fields):
        return {"n": of_node(labels=fields)}

    kind, name = labels.CAPACITY_RESERVATION_TYPE, labels.CAPACITY_RESERVATION_ID
    assert _blocks_of_nodes(lambda: nodes(**{kind: "capacity-block", name: "cr-1"})) == {"cr-1"}
    assert _blocks_of_nodes(lambda: nodes(**{kind: "default", name: "cr-1"})) == set()
    assert _blocks_of_nodes(lambda: nodes(**{kind: "capacity-block", name: ""})) == set()


@pytest.mark.parametrize(
    ("provider_id", "name"),
    [(INSTANCE, "i-1"), ("aws:///eu-west-1a/fargate-ip-1", ""), ("azure:///x/i-1", ""), ("", "")],
)
def test_only_an_instance_of_ec2_has_an_id(provider_id, name):
    assert instance_id_of(of_node(provider_id)) == name


@pytest.mark.parametrize("missing", [NODE_POOL, INSTANCE_TYPE, ZONE])
def test_a_node_that_lacks_a_label_tells_nothing_of_its_instance(missing):
    known = {NODE_POOL: "web", INSTANCE_TYPE: "m5.large", ZONE: "a", CAPACITY_TYPE: "spot"}
    assert _from_node("i-1", of_node(labels=known)) is not None
    assert _from_node("i-1", of_node(labels={**known, missing: ""})) is None


def test_only_a_registered_instance_in_a_reservation_that_stays_is_reserved():
    known = {CAPACITY_TYPE: RESERVED, REGISTERED: "true"}
    assert _is_reserved(of_node(labels=known))
    assert not _is_reserved(of_node("other:///i-1", labels=known))
    assert not _is_reserved(of_node(labels={**known, REGISTERED: "false"}))
    assert not _is_reserved(of_node(labels={**known, CAPACITY_TYPE: "spot"}))
    assert not _is_reserved(node("n", provider_id=INSTANCE, labels=known, deleted=EPOCH))


def test_values_of_other_types_are_no_expressions():
    reserved = {"cpu": 5, "memory": ["4Gi"], "pid": None}
    assert kubelet_expressions({"kubeReserved": reserved, "systemReserved": [], "maxPods": 5}) == {}
    assert not _is_number(True)
    assert _is_number(1.5)


@pytest.mark.parametrize(
    ("family", "dns_ip", "is_ipv6"),
    [
        ("IPv6", "10.0.0.10", True),
        ("IPv4", "fd00::a", False),
        ("", "fd00::a", True),
        ("", "10.0.0.10", False),
    ],
)
def test_the_family_that_is_given_is_before_that_of_the_dns_address(family, dns_ip, is_ipv6):
    facts = ClusterDetails(name="c", endpoint="", region="", ip_family=family, dns_ip=dns_ip)
    assert facts.is_ipv6 is is_ipv6


@pytest.mark.parametrize("amount", ["0", "-1", "Infinity", "NaN", "x"])
def test_a_price_that_is_no_amount_is_left_out(amount):
    def product(name, price):
        dimension = {"pricePerUnit": {"USD": price}}
        terms = {"OnDemand": {"t": {"priceDimensions": {"d": dimension}}}}
        return json.dumps({"product": {"attributes": {"instanceType": name}}, "terms": terms})

    listed = [product("m5.large", "0.1"), product("bad", amount)]
    assert read_products(listed, currency="USD") == {"m5.large": 0.1}


def test_a_zone_is_shifted_by_its_name_or_by_its_id():
    shifted = ShiftedZones(ids=frozenset({"use1-az1"}), names=frozenset({"us-east-1a"}))
    assert shifted.has("us-east-1a")
    assert shifted.has(zone_id="use1-az1")
    assert not shifted.has("us-east-1b", zone_id="use1-az2")
    assert not NO_SHIFTS.has("us-east-1a", zone_id="use1-az1")


@pytest.mark.parametrize(
    ("ends_at", "is_applied", "is_active"),
    [
        (None, True, True),
        (EPOCH + timedelta(seconds=1), True, True),
        (EPOCH, True, False),
        (None, False, False),
    ],
)
def test_a_shift_is_active_from_its_application_to_its_end(ends_at, is_applied, is_active):
    shift = ZonalShift(zone_id="use1-az1", ends_at=ends_at, is_applied=is_applied)
    assert bool(active_zone_ids([shift], now=EPOCH)) is is_active


def test_the_latest_amount_of_a_type_and_a_zone_is_its_spot_price():
    def item(price, at=EPOCH, instance_type="m5.large", zone="us-east-1a"):
        return {
            "InstanceType": instance_type,
            "AvailabilityZone": zone,
            "SpotPrice": price,
            "Timestamp": at,
        }

    later = EPOCH + timedelta(hours=1)
    items = [
        item("0.2"),
        item("0.1", later),
        item("0.3"),
        item("Infinity", later + timedelta(hours=1)),
        item("0.5", instance_type=""),
        item("0.5", zone=""),
    ]
    for listed in (items, items[::-1]):
        assert read_spot_history(listed) == {("m5.large", "us-east-1a"): 0.1}


def test_a_header_without_a_body_has_no_parts():
    assert mime_parts('Content-Type: multipart/mixed; boundary="x"') == ()


def test_an_answer_without_an_error_passes_a_trial():
    assert dry_run_outcome("ec2:RunInstances", None, instance_profile="") is PASSED


@pytest.mark.parametrize(
    ("selector", "terms"),
    [
        ({"aws-ids": "ami-1,ami-2"}, [{"id": "ami-1"}, {"id": "ami-2"}]),
        ({"aws-ids": "ami-1", "aws::owners": "self"}, [{"id": "ami-1"}]),
        ({"aws::name": "web-*"}, [{"name": "web-*"}]),
        (
            {"aws::name": "a, b", "aws::owners": "self"},
            [{"name": "a", "owner": "self"}, {"name": "b", "owner": "self"}],
        ),
        ({"team": "web"}, [{"tags": {"team": "web"}}]),
        (
            {"team": "web,shop", "aws::owners": "amazon"},
            [
                {"tags": {"team": "web"}, "owner": "amazon"},
                {"tags": {"team": "shop"}, "owner": "amazon"},
            ],
        ),
        ({"team": ""}, [{"tags": {"team": "*"}}]),
    ],
)
def test_a_selector_of_images_becomes_a_term_for_each_combination(selector, terms):
    assert ami_terms(selector, field="amiSelector") == terms


def test_a_selector_with_too_many_combinations_is_refused():
    def terms(count):
        values = ",".join(str(number) for number in range(count))
        return tag_terms({"team": values}, field="subnetSelector")

    assert len(terms(MAX_TERMS)) == MAX_TERMS
    with pytest.raises(BadInputError, match=f"{MAX_TERMS + 1} combinations"):
        terms(MAX_TERMS + 1)


@pytest.mark.parametrize(
    ("interfaces", "has_groups"),
    [
        ([], False),
        ([{"DeviceIndex": 0}], False),
        ([{"Groups": []}], False),
        ([{"DeviceIndex": 0}, {"Groups": ["sg-1"]}], True),
    ],
)
def test_a_template_decides_security_groups_by_an_interface_with_groups(interfaces, has_groups):
    template = SimpleNamespace(data={"NetworkInterfaces": interfaces})
    assert _has_interface(template) is has_groups


@pytest.mark.parametrize(
    ("family", "year", "build"),
    [
        (AmiFamily.WINDOWS2019, "2019", "10.0.17763"),
        (AmiFamily.WINDOWS2022, "2022", "10.0.20348"),
        (AmiFamily.WINDOWS2025, "2025", "10.0.26100"),
    ],
)
def test_windows_boots_from_its_own_disk(family, year, build):
    traits = _windows(year, build)
    assert traits == TRAITS[family]
    assert (traits.windows_year, traits.windows_build) == (year, build)
    assert traits.is_windows
    (device,) = traits.default_devices
    assert (device.device_name, device.size_gib) == ("/dev/sda1", 50)
    assert (traits.ephemeral_device, traits.default_ephemeral_gib) == ("/dev/sda1", 50)
    assert not traits.has_eni_density
    assert not traits.kube_reserved_uses_eni_pods


@pytest.mark.parametrize(
    ("value", "is_time"),
    [("2026-01-01T00:00:00+00:00", True), ("soon", False), (20260101, False), (None, False)],
)
def test_a_time_is_a_text_that_can_be_read(value, is_time):
    assert _is_time(value) is is_time


def test_only_the_newest_warnings_are_remembered(monkeypatch):
    monkeypatch.setattr(shortages, "_MAX_NOTED", 2)
    noted = InterruptionShortages(None, offerings=None, reservations=None)
    assert [noted._is_news(each) for each in "abbcba"] == [True, True, False, True, False, True]
