"""Answers of which a part is missing, and rules of several parts: each part counts by itself."""

from __future__ import annotations

import re

import msgspec
import pytest

from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.bootstrap.scripts import pool_runtime
from karpenter_provider_alibabacloud.catalogue.requirements import instance_labels
from karpenter_provider_alibabacloud.catalogue.stock import read_listing
from karpenter_provider_alibabacloud.codes import ErrorClass, classify
from karpenter_provider_alibabacloud.conversion.scaling_groups import _configuration
from karpenter_provider_alibabacloud.described_instances import FOREIGN_MARKS, parse_provider_id
from karpenter_provider_alibabacloud.discovery.call_errors import is_refusal
from karpenter_provider_alibabacloud.discovery.families import (
    FamilyMembership,
    ListedImage,
    _has_version,
)
from karpenter_provider_alibabacloud.discovery.reservations import _end
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS, NODE_CLAIM_TAG, _read
from karpenter_provider_alibabacloud.interruption.system_events import _moment, read_events
from karpenter_provider_alibabacloud.late_taints import is_late_tainted
from karpenter_provider_alibabacloud.node_class.dry_runs import PASSED, dry_run_outcome
from karpenter_provider_alibabacloud.price_queries import read_spot_advice, read_spot_history
from karpenter_provider_alibabacloud.sdk_caller import _text
from providers.alibabacloud.tests.catalogue.instance_type_data import info
from providers.alibabacloud.tests.manual_clock import NOON
from providers.alibabacloud.tests.test_late_taints import node


@pytest.mark.parametrize("missing", ["runtime", "runtime_version"])
def test_a_pool_that_says_half_of_its_runtime_is_passed_over(missing):
    def pool(name, healthy, without=""):
        config = {"runtime": name, "runtime_version": "1.6"}
        config.pop(without, None)
        return {"kubernetes_config": config, "status": {"healthy_nodes": healthy}}

    found = pool_runtime([pool("half", 9, missing), pool("containerd", 1)], node_pool_id="")
    assert found == ("containerd", "1.6")


@pytest.mark.parametrize("fields", [{"LocalStorageAmount": 2}, {"LocalStorageCapacity": 894}, {}])
def test_a_type_without_number_or_size_of_local_disks_has_no_labels_of_them(fields):
    described = instance_labels(info(**fields))
    assert described.get(labels.INSTANCE_LOCAL_DISK_SIZE) is None


def test_listed_resources_without_a_name_or_a_zone_are_left_out():
    def zone(**resource):
        group = {"SupportedResources": {"SupportedResource": [resource]}}
        return {"AvailableResources": {"AvailableResource": [group]}}

    zones = [
        zone(Value="ecs.a") | {"ZoneId": "a"},
        zone() | {"ZoneId": "b"},
        zone(Value="ecs.b"),
    ]
    assert read_listing({"AvailableZones": {"AvailableZone": zones}}).listed == {"ecs.a": ("a",)}


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("", 0, ErrorClass.TRANSIENT),
        ("Nothing.OfThisName", 0, ErrorClass.UNKNOWN),
        ("", 400, ErrorClass.UNKNOWN),
        ("", 404, ErrorClass.NOT_FOUND),
        ("Thing.NotFound", 400, ErrorClass.NOT_FOUND),
        ("Nothing.OfThisName", 503, ErrorClass.TRANSIENT),
    ],
)
def test_only_a_call_without_code_and_status_has_no_answer(code, status, kind):
    assert classify(code, status=status, message="") is kind


@pytest.mark.parametrize(("active", "chosen"), [("b", "b"), ("gone", "a"), (None, "a")])
def test_the_configuration_that_a_group_names_is_before_the_one_that_is_active(active, chosen):
    configurations = [
        {"ScalingGroupId": "g", "ScalingConfigurationId": name, "LifecycleState": state}
        for name, state in (("a", "Active"), ("b", "Inactive"))
    ]
    documents = [{"ScalingConfigurations": {"ScalingConfiguration": configurations}}]
    group = {"ScalingGroupId": "g", "ActiveScalingConfigurationId": active}
    assert _configuration(group, documents)["ScalingConfigurationId"] == chosen


def test_a_tag_of_one_claim_and_tags_of_several_name_claims():
    assert FOREIGN_MARKS.names_claim(NODE_CLAIM_TAG)
    assert FOREIGN_MARKS.names_claim(CLAIM_TAGS.key)
    assert not FOREIGN_MARKS.names_claim("app")


@pytest.mark.parametrize("text", ["i-1", ".i-1", "cn-hangzhou.", ""])
def test_a_provider_id_without_a_region_or_an_instance_is_refused(text):
    with pytest.raises(CloudProviderError):
        parse_provider_id(text)


def image(identifier="x", name="y", kind="", system="Linux"):
    return ListedImage(id=identifier, name=name, architecture="x86_64", kind=kind, system=system)


def test_one_mark_of_a_family_is_enough():
    family = FamilyMembership(
        id=re.compile("aliyun_.*"), name_prefix="ack-", kinds=frozenset({"container"})
    )
    assert family.has(image("aliyun_3"))
    assert family.has(image(name="ack-3"))
    assert family.has(image(kind="container"))
    assert not family.has(image("my_aliyun_3", "my-ack-3", "other"))
    assert not family.has(image("aliyun_3", system="Windows"))


def test_a_version_stands_in_the_id_or_in_the_name():
    assert _has_version(image("v_3.2104_x"), "3.2104")
    assert _has_version(image(name="v-3.2104-x"), "3.2104")
    assert not _has_version(image("v_13.2104_x", "v-3.21045-x"), "3.2104")


def test_an_unlimited_reservation_has_no_end_whatever_its_date():
    date = "2099-12-31T00:00:00Z"
    assert _end({"EndTime": date, "EndTimeType": "Unlimited"}) is None
    assert _end({"EndTime": date, "EndTimeType": "Limited"}).year == 2099
    assert _end({"EndTime": "", "EndTimeType": "Limited"}) is None


@pytest.mark.parametrize("entry", ["web", "!uid-of-nothing", "web:"])
def test_an_entry_without_a_colon_or_a_uid_names_no_claim(entry):
    assert _read(entry, "web") is None


def test_an_event_of_no_instance_and_a_closed_one_are_left_out():
    def event(**fields):
        return {"EventCycleStatus": {"Name": "Scheduled"}, **fields}

    events = read_events(
        [
            event(EventId="open", InstanceId="i-1"),
            event(EventId="nobody"),
            {"EventId": "over", "InstanceId": "i-2", "EventCycleStatus": {"Name": "Executed"}},
        ]
    )
    assert [each.id for each in events] == ["open"]


@pytest.mark.parametrize("value", ["", None, 5])
def test_values_other_than_dates_are_no_moments(value):
    assert _moment(value) is None


@pytest.mark.parametrize("conditions", [(), None])
def test_a_node_of_which_nobody_knows_since_when_it_is_ready_is_not_late(conditions):
    late = node()
    assert is_late_tainted(late, NOON)
    if conditions is None:
        conditions = (msgspec.structs.replace(late.conditions[0], last_transition_time=None),)
    assert not is_late_tainted(msgspec.structs.replace(late, conditions=conditions), NOON)


def test_a_price_without_a_zone_is_of_no_zone():
    items = [
        {"ZoneId": zone, "Timestamp": "2026-03-01T00:00:00Z", "SpotPrice": 0.1, "OriginPrice": 1.0}
        for zone in (None, "", "a")
    ]
    history = read_spot_history(items, currency="USD")
    assert set(history.by_zone) == {"a"}


def test_advice_needs_a_type_a_zone_and_a_discount():
    def zone(name, **resource):
        listed = {"AvailableSpotResource": [resource]}
        return {"ZoneId": name, "AvailableSpotResources": listed}

    zones = [
        zone("a", InstanceType="ecs.a", AverageSpotDiscount=30, InterruptionRate=-1),
        zone("", InstanceType="ecs.b", AverageSpotDiscount=30),
        zone("a", InstanceType="", AverageSpotDiscount=30),
        zone("a", InstanceType="ecs.c"),
    ]
    advice = read_spot_advice({"AvailableSpotZones": {"AvailableSpotZone": zones}})
    assert {name: set(by_zone) for name, by_zone in advice.items()} == {"ecs.a": {"a"}}
    assert advice["ecs.a"]["a"].interruption_percent is None


def test_an_error_text_of_the_sdk_may_be_missing():
    assert [_text(each) for each in (None, "None", "", "denied")] == ["", "", "", "denied"]


def test_an_answer_without_an_error_passes_a_trial():
    assert dry_run_outcome(None) is PASSED


@pytest.mark.parametrize(
    ("error", "refuses"),
    [
        (AuthError("no", action="ecs:RunInstances"), True),
        (ThrottledError("slow down"), False),
        (CloudProviderError("?"), False),
    ],
)
def test_only_an_answer_that_stays_the_same_is_a_refusal(error, refuses):
    assert is_refusal(error) is refuses


def test_resources_of_another_kind_are_not_listed():
    groups = [
        {"Type": kind, "SupportedResources": {"SupportedResource": [{"Value": value}]}}
        for kind, value in (("InstanceType", "ecs.a"), ("SystemDisk", "cloud_essd"))
    ]
    zone = {"ZoneId": "a", "AvailableResources": {"AvailableResource": groups}}
    assert read_listing({"AvailableZones": {"AvailableZone": [zone]}}).listed == {"ecs.a": ("a",)}
