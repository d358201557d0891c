"""Decisions of single functions: each condition of them counts by itself."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import ON_DEMAND, RESERVED
from karpenter_core.provider.contract import TerminationStatus
from karpenter_provider_alibabacloud.catalogue import capacity, resolution
from karpenter_provider_alibabacloud.catalogue.capacity import ephemeral_storage_gib
from karpenter_provider_alibabacloud.catalogue.instance_types import InstanceTypeCatalogue
from karpenter_provider_alibabacloud.catalogue.resolution import TypeResolver
from karpenter_provider_alibabacloud.codes import ApiError, ErrorClass, classify
from karpenter_provider_alibabacloud.conversion.scaling_groups import _spot_percentage
from karpenter_provider_alibabacloud.instance_terminator import _DeletionCalls
from karpenter_provider_alibabacloud.launch.ecs_cloud import _is_about_images
from karpenter_provider_alibabacloud.launch.plans import LaunchContext
from karpenter_provider_alibabacloud.launch.requests import needs_run_instances
from karpenter_provider_alibabacloud.price_queries import fetch_spot_history, read_spot_advice
from karpenter_provider_alibabacloud.prices import OnDemandQuote, _estimates
from karpenter_provider_alibabacloud.started_provider import StartedProvider
from providers.alibabacloud.tests.manual_clock import NOON
from tests.clouds.learned_memory import learned_memory

DISKS = (SimpleNamespace(size_gib=100), SimpleNamespace(size_gib=200))


@pytest.mark.parametrize(
    ("is_formatted", "disks", "has_script", "size"),
    [
        (True, DISKS, True, 200),
        (False, DISKS, True, 40),
        (True, (), True, 40),
        (True, DISKS, False, 40),
    ],
)
def test_the_kubelet_is_on_the_last_data_disk_that_the_script_formats(
    monkeypatch, is_formatted, disks, has_script, size
):
    monkeypatch.setattr(capacity, "_has_script", lambda _cluster: has_script)
    spec = SimpleNamespace(format_data_disk=is_formatted, data_disks=disks, system_disk_gib=40)
    assert ephemeral_storage_gib(spec, None) == size


@pytest.mark.parametrize(
    ("booted", "chosen", "is_learned"), [("i", "i", True), ("j", "i", False), ("", "", False)]
)
def test_only_a_node_with_the_chosen_image_teaches_its_memory(booted, chosen, is_learned):
    catalogue = SimpleNamespace(
        _find=lambda _entry, _name: SimpleNamespace(
            image_id=chosen, inputs=SimpleNamespace(info=SimpleNamespace(memory_mib=1))
        ),
        _now=lambda *_: None,
        _learned=SimpleNamespace(observe=lambda *_, sold_bytes, now: True),
    )
    found = InstanceTypeCatalogue.learn_memory(
        catalogue,
        None,
        SimpleNamespace(now=NOON),
        instance_type="ecs.g7.large",
        image_id=booted,
        memory_bytes=1,
    )
    assert found is is_learned


@pytest.mark.parametrize(
    ("on_demand", "spot", "fits", "is_sold"),
    [
        (["t"], [], True, True),
        ([], ["t"], True, True),
        ([], [], True, False),
        (["t"], ["t"], False, False),
    ],
)
def test_a_type_is_sold_on_demand_or_as_spot(monkeypatch, on_demand, spot, fits, is_sold):
    monkeypatch.setattr(resolution, "fits_network", lambda _info, _cluster: fits)
    stock = SimpleNamespace(on_demand_listed=on_demand, spot_listed=spot)
    resolver = SimpleNamespace(_cluster=None)
    assert TypeResolver.is_sold(resolver, SimpleNamespace(name="t"), stock) is is_sold


@pytest.mark.parametrize(
    ("code", "message", "is_shortage"),
    [
        ("OperationDenied", "the type is out of usage", True),
        ("OperationDenied", "because of your bill", False),
        ("Strange", "the type is out of usage", False),
        ("InvalidParameter.Conflict", "it does not support the specified instance type", True),
        ("Strange", "it does not support the specified instance type", False),
    ],
)
def test_a_shortage_has_its_code_and_its_text(code, message, is_shortage):
    found = classify(code, status=400, message=message)
    assert (found is ErrorClass.CAPACITY) is is_shortage


class RefusedError(ApiError):
    """A refusal of a class."""

    error_class = ErrorClass.UNKNOWN

    def __init__(self, error_class):
        super().__init__("Code", "m", "R-1", 400, action="ecs:DeleteInstances")
        self.error_class = error_class


@pytest.mark.parametrize(
    ("error_class", "is_alone", "kind"),
    [
        (ErrorClass.NOT_FOUND, True, "started"),
        (ErrorClass.STATE, False, "started"),
        (ErrorClass.PROTECTED, True, "refused"),
        (ErrorClass.PROTECTED, False, "refused"),
        (ErrorClass.UNKNOWN, False, "refused"),
        (ErrorClass.UNKNOWN, True, "failed"),
    ],
)
def test_a_refusal_is_about_an_instance_that_is_protected_or_not_alone(error_class, is_alone, kind):
    refusal = RefusedError(error_class)
    outcome = _DeletionCalls.refused_outcome(None, "i-1", refusal, is_alone=is_alone)
    if kind == "started":
        assert outcome is TerminationStatus.STARTED
    else:
        assert ("cannot be deleted" in str(outcome)) is (kind == "refused")
        assert outcome.__cause__ is refusal


@pytest.mark.parametrize(
    ("has_images", "error_class", "text", "is_about_images"),
    [
        (True, ErrorClass.CONFIGURATION, "LaunchTemplateConfig.1.ImageId", True),
        (False, ErrorClass.CONFIGURATION, "LaunchTemplateConfig.1.ImageId", False),
        (True, ErrorClass.UNKNOWN, "LaunchTemplateConfig.1.ImageId", False),
        (True, ErrorClass.CONFIGURATION, "ImageId", False),
        (True, ErrorClass.CONFIGURATION, "LaunchTemplateConfig.1.VSwitchId", False),
    ],
)
def test_a_refusal_of_images_names_them(has_images, error_class, text, is_about_images):
    call = SimpleNamespace(has_images=has_images)
    error = SimpleNamespace(code="InvalidParameter", message=text, error_class=error_class)
    assert _is_about_images(call, error) is is_about_images


@pytest.mark.parametrize(
    ("disk", "categories", "wants"),
    [(None, (), False), ("set", ("cloud_essd",), True), ("set", ("all",), False)],
)
def test_disks_are_looked_at_where_categories_are_left_out(monkeypatch, disk, categories, wants):
    monkeypatch.setattr("karpenter_provider_alibabacloud.launch.plans.DISK_CATEGORIES", ("all",))
    spec = SimpleNamespace(system_disk=disk, system_disk_categories=categories)
    context = SimpleNamespace(node_class=SimpleNamespace(spec=spec))
    assert LaunchContext.wants_disks.fget(context) is wants


@pytest.mark.parametrize(
    ("left", "is_short", "is_sold_out"),
    [(0, False, True), (1, True, True), (1, False, False)],
)
def test_used_up_private_pools_and_shortages_are_sold_out(left, is_short, is_sold_out):
    """A private pool with instances left is not: its vSwitches are full, and another NodeClass has others."""
    context = SimpleNamespace(
        _is_short=lambda _it, _offering: is_short, _is_left=lambda _offering: bool(left)
    )
    assert LaunchContext.is_sold_out(context, None, None) is is_sold_out


@pytest.mark.parametrize(
    ("zone", "is_short", "capacity_type", "left", "is_open"),
    [
        ("a", False, ON_DEMAND, 0, True),
        ("b", False, ON_DEMAND, 0, False),
        ("a", True, ON_DEMAND, 0, False),
        ("a", False, RESERVED, 1, True),
        ("a", False, RESERVED, 0, False),
    ],
)
def test_an_offering_is_open_with_a_vswitch_and_room(
    monkeypatch, zone, is_short, capacity_type, left, is_open
):
    monkeypatch.setattr(
        "karpenter_provider_alibabacloud.launch.plans.reservation_of", lambda _offering: "cr-1"
    )
    status = SimpleNamespace(v_switches=[SimpleNamespace(id="vsw-a", zone_id="a")])
    asked = []
    context = SimpleNamespace(
        node_class=SimpleNamespace(status=status),
        _is_short=lambda _it, _offering, vswitches: asked.append(list(vswitches)) or is_short,
        reserved_left=lambda _id: left,
    )
    context._is_left = partial(LaunchContext._is_left, context)
    offering = SimpleNamespace(zone=zone, capacity_type=capacity_type)
    assert LaunchContext.is_open(context, None, offering) is is_open
    assert asked == ([["vsw-a"]] if zone == "a" else [])


OPTIONS = {"http_tokens": "", "http_endpoint": "", "http_put_response_hop_limit": None}


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        (None, False),
        ({}, False),
        ({"http_tokens": "required"}, True),
        ({"http_endpoint": "enabled"}, True),
        ({"http_put_response_hop_limit": 2}, True),
    ],
)
def test_each_metadata_option_needs_another_api(options, needs):
    made = None if options is None else SimpleNamespace(**{**OPTIONS, **options})
    node_class = SimpleNamespace(spec=SimpleNamespace(metadata_options=made))
    assert needs_run_instances(node_class) is needs


def test_a_history_ends_at_an_empty_page():
    pages = [
        {"NextOffset": 10, "SpotPrices": {"SpotPriceType": [{"ZoneId": "a", "SpotPrice": 0.1}]}},
        {"NextOffset": 20, "SpotPrices": {"SpotPriceType": []}},
    ]
    asked = []

    def call(_action, parameters):
        asked.append(parameters["Offset"])
        return pages[len(asked) - 1]

    assert fetch_spot_history(call, "ecs.g7.large", 1).by_zone == {"a": 0.1}
    assert asked == [0, 10]


@pytest.mark.parametrize(
    ("zone", "name", "is_listed"),
    [("a", "ecs.g7.large", True), (None, "ecs.g7.large", False), ("a", None, False)],
)
def test_advice_is_of_a_type_in_a_zone(zone, name, is_listed):
    item = {"InstanceType": name, "AverageSpotDiscount": 30}
    place = {"ZoneId": zone, "AvailableSpotResources": {"AvailableSpotResource": [item]}}
    advice = read_spot_advice({"AvailableSpotZones": {"AvailableSpotZone": [place]}})
    assert {key: list(zones) for key, zones in advice.items()} == (
        {"ecs.g7.large": ["a"]} if is_listed else {}
    )


def test_a_price_for_a_core_needs_a_family_and_cores():
    def factors(family, cores):
        return _estimates({"t": OnDemandQuote(1.0, family, cores, 0.5, NOON)})[0]

    assert factors("ecs.g7", 2) == {"ecs.g7": 0.5}
    assert factors("ecs.g7", 0) == {}
    assert factors("", 2) == {}


@pytest.mark.parametrize(
    ("vswitches", "instance_type", "is_learned"),
    [
        (["vsw"], "ecs.g7.large", True),
        ([], "ecs.g7.large", False),
        (["vsw"], "", False),
        (None, "t", False),
    ],
)
def test_memory_is_learned_of_a_known_type_and_class(vswitches, instance_type, is_learned):
    status = None if vswitches is None else {"v_switches": vswitches}
    learned = learned_memory(StartedProvider, status, instance_type)
    assert learned == ([0] if is_learned else [])


@pytest.mark.parametrize(
    ("group", "configuration", "percentage"),
    [
        ({"OnDemandPercentageAboveBaseCapacity": 30}, {"SpotStrategy": "NoSpot"}, 70),
        ({"OnDemandPercentageAboveBaseCapacity": 0}, {}, 100),
        ({}, {"SpotStrategy": "SpotAsPriceGo"}, 100),
        ({}, {"SpotStrategy": "NoSpot"}, 0),
        ({}, {}, 0),
        ({}, {"SpotStrategy": ""}, 0),
    ],
)
def test_a_group_buys_spot_by_its_share_or_its_strategy(group, configuration, percentage):
    assert _spot_percentage(group, configuration) == percentage
