"""Decisions of single functions: each condition of them counts by itself."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import CloudProviderError, LaunchFailedError
from karpenter_provider_azure import labels
from karpenter_provider_azure.arm.errors import ArmError, ArmNotFoundError
from karpenter_provider_azure.arm.sdk_sender import SdkSender
from karpenter_provider_azure.bootstrap import node_boot
from karpenter_provider_azure.catalogue import price_reader
from karpenter_provider_azure.catalogue.price_reader import RetailPriceList
from karpenter_provider_azure.conversion import agent_pools
from karpenter_provider_azure.images.versions import newest_community_version
from karpenter_provider_azure.instance_tags import CLAIM_NAME_TAG, instance_tags
from karpenter_provider_azure.instances.cluster_vms import _VmDeletions
from karpenter_provider_azure.instances.orphans import _is_disk_attached
from karpenter_provider_azure.json_service import _message
from karpenter_provider_azure.labels import REGIONAL_ZONE
from karpenter_provider_azure.launch import extensions, failure_recorder, vm_launcher
from karpenter_provider_azure.launch.claim_launches import uses_ultra_ssd
from karpenter_provider_azure.launch.extensions import CustomScripts, ExtensionInstaller
from karpenter_provider_azure.launch.failure_recorder import FailureRecorder
from karpenter_provider_azure.launch.failures import (
    _LONG_LIFE,
    _NOT_SOLD_LIFE,
    _QUOTA_LIFE,
    REGIONAL_QUOTA_LIFE,
    LaunchFailureKind,
    _life,
    _Zones,
    _zones,
)
from karpenter_provider_azure.launch.vm_calls import VmCalls
from karpenter_provider_azure.launch.vm_launcher import VmLauncher
from karpenter_provider_azure.machines.node_instances import _MachineDeletions
from karpenter_provider_azure.region_parts import has_price_list
from karpenter_provider_azure.settings import PRICING_URL, AzureSettings, parse_tags
from karpenter_provider_azure.started_provider import NO_IMAGE_REASON, StartedProvider
from tests.clouds.learned_memory import learned_memory


@pytest.mark.parametrize(
    ("plugin", "mode", "is_overlay"),
    [("azure", "overlay", True), ("none", "overlay", False), ("azure", "", False)],
)
def test_an_overlay_is_a_mode_of_one_plugin(plugin, mode, is_overlay):
    settings = SimpleNamespace(network_plugin=plugin, network_plugin_mode=mode)
    assert AzureSettings.is_overlay.fget(settings) is is_overlay


@pytest.mark.parametrize(
    ("url", "is_public", "has_list"),
    [
        (PRICING_URL, True, True),
        (PRICING_URL, False, False),
        ("https://prices.example", False, True),
        ("", True, False),
    ],
)
def test_prices_are_listed_for_the_public_cloud_or_by_another_list(url, is_public, has_list):
    settings = SimpleNamespace(pricing_url=url, cloud=SimpleNamespace(is_public=is_public))
    assert has_price_list(settings) is has_list


@pytest.mark.parametrize(
    ("operator", "values", "uses"),
    [
        (None, [], False),
        ("In", ["true"], True),
        ("In", ["false"], False),
        ("In", ["true", "false"], False),
        ("In", ["other"], False),
        ("NotIn", ["false"], True),
    ],
)
def test_ultra_disks_are_used_where_nothing_else_is_allowed(operator, values, uses):
    wanted = []
    if operator is not None:
        key = labels.SKU_STORAGE_ULTRA_SSD
        wanted.append(RequirementSpec(key=key, operator=operator, values=tuple(values)))
    assert uses_ultra_ssd(SimpleNamespace(spec=SimpleNamespace(requirements=wanted))) is uses


@pytest.mark.parametrize(
    ("error", "of_vm", "of_machine"),
    [
        (ArmError("no", status=400), True, True),
        (ArmError("no", status=409), True, False),
        (ArmError("no", status=400, may_be_done=True), False, False),
        (CloudProviderError("no answer"), False, False),
    ],
)
def test_a_refusal_is_one_that_cannot_have_been_carried_out(error, of_vm, of_machine):
    assert _VmDeletions.read_refusal(None, error) is (error if of_vm else None)
    assert _MachineDeletions.read_refusal(None, error) is (error if of_machine else None)


@pytest.mark.parametrize(
    ("item", "is_attached"),
    [
        ({"properties": {"diskState": "Unattached"}}, False),
        ({"properties": {"diskState": "Attached"}}, True),
        ({"properties": {"diskState": None}}, True),
        ({}, True),
        ({"properties": {"diskState": "Unattached"}, "managedBy": "/vm"}, True),
    ],
)
def test_a_disk_is_free_that_azure_calls_so(item, is_attached):
    assert _is_disk_attached(item) is is_attached


@pytest.mark.parametrize(
    ("text", "count", "complaints"), [("a=b", 1, 0), ("a", 0, 1), ("=b", 0, 1), ("a=", 1, 0)]
)
def test_a_tag_has_a_key_and_a_separator(text, count, complaints):
    tags, found = parse_tags(text)
    assert (len(tags), len(found)) == (count, complaints)


@pytest.mark.parametrize(
    ("zones", "zone", "closed"),
    [
        (_Zones.ATTEMPT, "a", ("a",)),
        (_Zones.SCOPE, REGIONAL_ZONE, (REGIONAL_ZONE,)),
        (_Zones.SCOPE, "a", ("a", "b")),
        (_Zones.ALL, "a", ("a", "b", REGIONAL_ZONE)),
        (_Zones.ALL, REGIONAL_ZONE, ("a", "b", REGIONAL_ZONE)),
    ],
)
def test_a_failure_closes_zones_of_its_kind(zones, zone, closed):
    attempt = SimpleNamespace(zone=zone, size_zones=("a", "b"))
    assert _zones(zones, attempt) == tuple(sorted(closed))


@pytest.mark.parametrize(
    ("kind", "text", "capacity_type", "life"),
    [
        (LaunchFailureKind.REGIONAL_QUOTA, "", ON_DEMAND, REGIONAL_QUOTA_LIFE),
        (LaunchFailureKind.SPOT_QUOTA, "", SPOT, _LONG_LIFE),
        (LaunchFailureKind.FAMILY_QUOTA, "Current Limit: 0", ON_DEMAND, _LONG_LIFE),
        (LaunchFailureKind.FAMILY_QUOTA, "Current Limit: 10", ON_DEMAND, _QUOTA_LIFE),
        (LaunchFailureKind.SIZE_NOT_AVAILABLE, "", ON_DEMAND, _NOT_SOLD_LIFE),
        (LaunchFailureKind.SIZE_DISALLOWED, "Current Limit: 0", ON_DEMAND, _LONG_LIFE),
        (LaunchFailureKind.SIZE_UNSUITABLE, "", ON_DEMAND, _LONG_LIFE),
    ],
)
def test_a_failure_is_remembered_for_a_time_of_its_kind(kind, text, capacity_type, life):
    assert _life(kind, text, capacity_type) == life


LONG_NAME = f"{'web' * 30}-abcde"
"""One that is cut in the name of its virtual machine."""


def test_a_claim_without_a_name_has_no_tag_of_it():
    def tags(name):
        return instance_tags(
            {}, additional_tags={}, cluster="c", claim_uid="uid", node_pool="web", claim_name=name
        )

    assert CLAIM_NAME_TAG not in tags("")
    assert CLAIM_NAME_TAG not in tags("web-abcde")
    assert tags(LONG_NAME)[CLAIM_NAME_TAG] == LONG_NAME


@pytest.mark.parametrize(("has_claim", "has_scripts"), [(True, True), (True, False), (False, True)])
def test_a_script_needs_its_claim(has_claim, has_scripts):
    scripts = SimpleNamespace(script=lambda _vm, _claim: "echo")
    installer = SimpleNamespace(
        _settings=SimpleNamespace(location="westeurope"), _scripts=scripts if has_scripts else None
    )
    vm, claim = SimpleNamespace(tags={}), SimpleNamespace() if has_claim else None
    body = ExtensionInstaller._body(installer, vm, extensions.SCRIPT_EXTENSION, claim)
    assert (body is not None) is (has_claim and has_scripts)
    assert ExtensionInstaller._body(installer, vm, extensions.BILLING_EXTENSION, None)


@pytest.mark.parametrize(
    ("images", "instance_type", "is_learned"),
    [
        (["i"], "Standard_D2s_v5", True),
        ([], "Standard_D2s_v5", False),
        (["i"], "", False),
        (None, "t", False),
    ],
)
def test_memory_is_learned_of_a_known_size_and_class(images, instance_type, is_learned):
    status = None if images is None else {"images": images}
    learned = learned_memory(StartedProvider, status, instance_type)
    assert learned == ([0] if is_learned else [])


@pytest.mark.parametrize(
    ("dates", "newest"),
    [
        (["2026-01-01T00:00:00", "2026-01-02T00:00:00+00:00"], "1"),
        (["2026-01-02T00:00:00", "2026-01-01T23:00:00-02:00"], "1"),
        (["2026-01-02T00:00:00", "2026-01-02T01:00:00+02:00"], "0"),
        (["2026-01-02T00:00:00", "soon"], "0"),
        (["soon"], ""),
    ],
)
def test_a_date_without_a_zone_is_one_of_utc(dates, newest):
    versions = [
        {"name": str(number), "properties": {"publishedDate": date}}
        for number, date in enumerate(dates)
    ]
    assert newest_community_version(versions) == newest


def test_the_error_of_a_failed_launch_names_its_cause(monkeypatch):
    raised = CloudProviderError("no")
    for name, value in (
        ("classify_failure", None),
        ("failed_marks", None),
        ("launch_error", raised),
    ):
        monkeypatch.setattr(failure_recorder, name, lambda *_, value=value, **__: value)
    recorder = SimpleNamespace(
        metrics=SimpleNamespace(note_failed=lambda *_, **__: None), _sizes_of=None
    )
    error, attempt = (
        ArmError("full", status=409),
        SimpleNamespace(instance_type="d2", capacity_type=SPOT),
    )
    found = FailureRecorder.record(recorder, error, attempt, phase="refused")
    assert found is raised
    assert found.__cause__ is error


def poll(*, error=None, is_done=False, retry_after=None):
    return SimpleNamespace(error=error, is_done=is_done, retry_after=retry_after)


FAILED = ArmError("allocation failed", status=409)


@pytest.mark.parametrize(
    ("answers", "slept", "is_raised"),
    [
        ([poll(is_done=True)], [], False),
        ([poll(), poll(is_done=True)], [10.0], False),
        ([poll(retry_after=timedelta(seconds=3)), poll(is_done=True)], [3.0], False),
        ([CloudProviderError("no answer")], [], False),
        ([poll(error=FAILED)], [], True),
        ([poll()] * 3, [10.0, 10.0], False),
    ],
    ids=["done", "later", "when Azure says", "unread", "failed", "too long"],
)
def test_a_standalone_launch_is_waited_for(monkeypatch, answers, slept, is_raised):
    monkeypatch.setattr(vm_launcher, "_LONGEST_STANDALONE_WAIT", timedelta(seconds=20))
    monkeypatch.setattr(vm_launcher, "POLL_PERIOD", timedelta(seconds=10))
    waits, forgotten, left = [], [], list(answers)

    def ask(_url):
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    launcher = SimpleNamespace(
        _clock=SimpleNamespace(monotonic=lambda: sum(waits)),
        _operations=SimpleNamespace(get=lambda _id: "url"),
        _calls=SimpleNamespace(poll=ask),
        _log=SimpleNamespace(info=lambda *_, **__: None),
        _recent=SimpleNamespace(forget=forgotten.append),
        _existing=SimpleNamespace(discard=lambda _vm, error: CloudProviderError(str(error))),
        _sleep=waits.append,
    )
    vm = SimpleNamespace(id="vm-1", name="vm")
    with pytest.raises(CloudProviderError, match="allocation") if is_raised else nullcontext():
        VmLauncher._wait(launcher, vm)
    assert waits == slept
    assert forgotten == (["vm-1"] if is_raised else [])


@pytest.mark.parametrize(
    ("numbers", "region", "values", "warnings"),
    [
        ([], "eastus", None, 0),
        (["1", "2"], "East US", ["eastus-1", "eastus-2"], 0),
        (["1"], "", None, 1),
    ],
)
def test_zones_need_the_name_of_their_region(numbers, region, values, warnings):
    warned = []
    found = agent_pools._zones(numbers, region, SimpleNamespace(warn=warned.append))
    assert [each["values"] for each in found] == ([] if values is None else [values])
    assert len(warned) == warnings


@pytest.mark.parametrize(
    ("error", "reasons", "has_class"),
    [
        (LaunchFailedError("no image", reason="other"), [], True),
        (LaunchFailedError("no image", reason=NO_IMAGE_REASON), ["AzureLinux"], True),
        (LaunchFailedError("no image", reason=NO_IMAGE_REASON), [""], False),
        (CloudProviderError("no"), [], True),
    ],
)
def test_a_launch_without_an_image_is_counted_by_family(error, reasons, has_class):
    counted, noted = [], []

    def launch(_request):
        raise error

    node_class = SimpleNamespace(spec=SimpleNamespace(image_family="AzureLinux"))
    provider = SimpleNamespace(
        parts=SimpleNamespace(
            node_class=SimpleNamespace(
                refused_launches=SimpleNamespace(note=lambda _requests, found: noted.extend(found))
            ),
            launch=SimpleNamespace(launcher=SimpleNamespace(launch=launch)),
        ),
        node_classes=SimpleNamespace(node_class=lambda _name: node_class if has_class else None),
        metrics=SimpleNamespace(observe_image_error=counted.append),
    )
    request = SimpleNamespace(node_class=SimpleNamespace(name="default"))
    with pytest.raises(CloudProviderError) as caught:
        StartedProvider.launch(provider, request)
    assert (caught.value, noted, counted) == (error, [error], reasons)


def test_launches_one_after_another_each_have_their_outcome():
    error = CloudProviderError("no")

    def launch(request):
        if request == "bad":
            raise error
        return f"launched {request}"

    provider = SimpleNamespace(launch=launch)
    outcomes = StartedProvider._launch_each(provider, ["a", "bad", "b"])
    assert list(outcomes) == ["launched a", error, "launched b"]


def test_the_message_of_an_answer_that_breaks_off_is_its_reason():
    def broken(_size):
        raise OSError("reset")

    answers = [broken, lambda _size: b" why ", lambda _size: b""]
    found = [_message(SimpleNamespace(read=read, reason="Bad Gateway")) for read in answers]
    assert found == ["Bad Gateway", "why", "Bad Gateway"]


def test_a_virtual_machine_that_is_gone_tells_no_failure():
    def gone(*_arguments, **_options):
        raise ArmNotFoundError("gone", status=404)

    calls = SimpleNamespace(_arm=SimpleNamespace(get=gone), _path=lambda name: name)
    assert VmCalls.failure(calls, "vm") is None


@pytest.mark.parametrize(
    ("url", "is_own"),
    [
        ("https://management.azure.com/subscriptions", True),
        ("https://management.azure.com:443/x", True),
        ("https://eastus.management.azure.com/x", True),
        ("http://management.azure.com:443/x", False),
        ("https://management.azure.com:444/x", False),
        ("https://me@management.azure.com/x", False),
        ("https://evilmanagement.azure.com/x", False),
        ("https://management.azure.com:port/x", False),
    ],
)
def test_a_link_is_followed_to_the_same_endpoint_only(url, is_own):
    sender = SimpleNamespace(endpoint="https://management.azure.com")
    assert SdkSender.is_own(sender, url) is is_own


@pytest.mark.parametrize(
    ("link", "following"),
    [(None, None), ("", None), (5, None), ("https://p.example/next", "https://p.example/next")],
)
def test_the_next_page_of_prices_is_a_link_of_the_same_list(link, following):
    prices = SimpleNamespace(_url="https://p.example/prices")
    assert RetailPriceList._next_page(prices, {"NextPageLink": link}) == following
    with pytest.raises(CloudProviderError, match="is not of"):
        RetailPriceList._next_page(prices, {"NextPageLink": "https://other.example/next"})


@pytest.mark.parametrize(
    ("on_demand", "spot", "is_taken"),
    [({}, {}, False), ({"a": 1.0}, {}, True), ({}, {"a": 1.0}, True)],
)
def test_a_price_list_has_a_price(monkeypatch, on_demand, spot, is_taken):
    listed = SimpleNamespace(on_demand=on_demand, spot=spot)
    monkeypatch.setattr(price_reader, "read_price_items", lambda _items: listed)
    prices = SimpleNamespace(update=lambda *_, now: True, save=lambda *_, now: None)
    reader = SimpleNamespace(
        _items=lambda _region: [], _region="r", _clock=SimpleNamespace(now=lambda: None),
        _prices=prices, _disk=None,
    )  # fmt: skip
    owner = price_reader.PriceReader
    with nullcontext() if is_taken else pytest.raises(CloudProviderError, match="no prices"):
        assert owner.refresh(reader) is True


@pytest.mark.parametrize(
    ("value", "is_read"), [("x", True), ("", False), (None, False), (1, False)]
)
def test_an_answer_of_the_bootstrapping_service_has_texts(value, is_read):
    with nullcontext() if is_read else pytest.raises(LaunchFailedError, match="has no cse"):
        assert node_boot._text({"cse": value}, "cse") == value


@pytest.mark.parametrize(
    ("name", "zone", "capacity_type", "has_size", "is_found"),
    [
        ("s", "a", ON_DEMAND, True, True),
        ("t", "a", ON_DEMAND, True, False),
        ("s", "b", ON_DEMAND, True, False),
        ("s", "a", SPOT, True, False),
        ("s", "a", ON_DEMAND, False, False),
    ],
)
def test_a_script_is_of_the_size_and_place_of_its_machine(
    name, zone, capacity_type, has_size, is_found
):
    offering = SimpleNamespace(zone="a", capacity_type=ON_DEMAND)
    types = [SimpleNamespace(name="s", offerings=[offering], requirements="r")]
    scripts = SimpleNamespace(
        _node_class_of=lambda _claim: "class",
        _catalogue=SimpleNamespace(
            sizes=lambda: {"s": "size", "t": "size"} if has_size else {},
            instance_types=lambda _class: types,
        ),
    )
    vm = SimpleNamespace(
        instance_type=name, zone=zone, capacity_type=capacity_type, name="vm", image_id="i"
    )
    claim = SimpleNamespace(name="claim", spec=SimpleNamespace(requirements=()))
    with nullcontext() if is_found else pytest.raises(CloudProviderError):
        target = CustomScripts._target(scripts, vm, claim)
        assert (target.size, target.zone, target.requirements) == ("size", "a", "r")


def test_a_script_needs_the_node_class_of_its_claim():
    scripts = SimpleNamespace(_node_class_of=lambda _claim: None)
    with pytest.raises(CloudProviderError, match='AKSNodeClass of NodeClaim "claim"'):
        CustomScripts._target(scripts, None, SimpleNamespace(name="claim"))


def test_each_field_of_a_description_is_used_or_left_out():
    used, left = [], []
    draft = SimpleNamespace(
        source={"name": "web", "osSku": "Ubuntu", "id": "/x"},
        use=lambda field, _reason: used.append(field),
        leave_out=lambda field, _reason: left.append(field),
    )
    agent_pools._leave_out_all(draft, used=("name", "osSku"))
    assert used == ["name", "osSku"]
    assert "id" in left
