"""Decisions of single functions: each condition of them counts by itself."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE, ON_DEMAND, RESERVED, SPOT
from karpenter_core.api.prices import Price
from karpenter_core.errors import CloudProviderError, ExhaustedScope
from karpenter_core.provider.kit.launch.cloud import FailureKind
from karpenter_provider_aws.api.node_class_status import CapacityReservation
from karpenter_provider_aws.catalogue.current_types import CurrentInstanceTypes
from karpenter_provider_aws.catalogue.offerings import reserved_offerings
from karpenter_provider_aws.cluster import ClusterReader
from karpenter_provider_aws.codes import is_out_of_addresses, is_unfulfillable
from karpenter_provider_aws.conversion import node_templates
from karpenter_provider_aws.discovery.cluster_network import ServiceNetwork
from karpenter_provider_aws.interruption.directory import InstanceDirectory
from karpenter_provider_aws.launch.answers import _used_up_quotas
from karpenter_provider_aws.launch.fleet_cloud import _call_failure
from karpenter_provider_aws.launch.template_data import _add_reservation, _volume
from karpenter_provider_aws.launch.templates import ClusterLaunchTemplates
from karpenter_provider_aws.registration import refusal_of_other_id
from karpenter_provider_aws.service_models import _with_shared_texts
from karpenter_provider_aws.type_compatibility import _interfaces_misfit

FREE_ADDRESSES = "there are not sufficient free Ipv4 addresses or prefixes"
NOT_SOLD = "the type is not supported in your requested Availability Zone"


@pytest.mark.parametrize(
    ("code", "message", "of_addresses", "is_shortage"),
    [
        ("InvalidParameterValue", FREE_ADDRESSES, True, True),
        ("InvalidParameterValue", "bad", False, False),
        ("Strange", FREE_ADDRESSES, False, False),
        ("InvalidFleetConfiguration", NOT_SOLD, False, True),
        ("InvalidFleetConfiguration", "bad", False, False),
        ("Strange", NOT_SOLD, False, False),
        ("InsufficientInstanceCapacity", "", False, True),
    ],
)
def test_a_shortage_has_its_code_and_its_text(code, message, of_addresses, is_shortage):
    assert is_out_of_addresses(code, message) is of_addresses
    assert is_unfulfillable(code, message) is is_shortage


@pytest.mark.parametrize(
    ("endpoint", "ca_bundle", "asks"),
    [("https://c", "ca", 0), ("", "ca", 1), ("https://c", "", 1), ("", "", 1)],
)
def test_eks_is_asked_for_what_settings_leave_out(endpoint, ca_bundle, asks):
    asked = []

    def get():
        asked.append(1)
        return SimpleNamespace(endpoint="https://eks", ca_bundle="eks-ca")

    cluster = SimpleNamespace(
        _settings=SimpleNamespace(
            cluster_endpoint=endpoint, cluster_ca_bundle=ca_bundle, cluster_name="web"
        ),
        _eks=SimpleNamespace(get=get),
    )
    found = ClusterReader.address(cluster)
    assert found == (endpoint or "https://eks", ca_bundle or "eks-ca")
    assert len(asked) == asks


def test_instances_that_leave_are_not_warned_of():
    def instance(number, *, is_leaving):
        return SimpleNamespace(
            id=f"i-{number}", reservation_id="cr-1", capacity_type=ON_DEMAND, is_leaving=is_leaving,
            claim_name="web", node_pool="p", instance_type="t", zone="a", tags={}, provider_id="",
        )  # fmt: skip

    there, gone = instance(1, is_leaving=False), instance(2, is_leaving=True)
    spot = SimpleNamespace(**{**vars(there), "id": "i-3", "capacity_type": SPOT})
    described = {each.id: each for each in (there, gone, spot)}
    reader = SimpleNamespace(of_ids=lambda _ids: described)
    directory = SimpleNamespace(_reader=reader)
    assert InstanceDirectory.on_demand_among(directory, list(described)) == ("i-1",)


def failure(scope, *, has_target=True):
    target = SimpleNamespace(
        instance_type="m5.large", offering=SimpleNamespace(capacity_type=ON_DEMAND)
    )
    return SimpleNamespace(target=target if has_target else None, scope=scope)


def test_a_quota_is_used_up_for_the_class_of_a_target():
    sizes = [SimpleNamespace(name="m5.large", capacity={"cpu": 2000})]
    quota, offering = ExhaustedScope.FAMILY_QUOTA, ExhaustedScope.OFFERING
    failures = [failure(quota, has_target=False), failure(offering), failure(quota)]
    (shortage,) = _used_up_quotas(failures, sizes)
    assert (shortage.capacity_type, shortage.least_cpu_milli) == (ON_DEMAND, 2000)
    (shortage,) = _used_up_quotas(failures, [])
    assert shortage.least_cpu_milli == 0


def test_a_call_without_an_answer_may_have_been_carried_out():
    error = CloudProviderError("no answer")
    assert _call_failure(error, is_sent=True).kind is FailureKind.UNANSWERED
    assert _call_failure(error, is_sent=False).kind is not FailureKind.UNANSWERED


@pytest.mark.parametrize(
    ("capacity_type", "has_reservation", "preference"),
    [
        (RESERVED, True, "capacity-reservations-only"),
        (RESERVED, False, "none"),
        (ON_DEMAND, True, "none"),
    ],
)
def test_a_reservation_is_used_by_reserved_capacity(capacity_type, has_reservation, preference):
    reservation = SimpleNamespace(id="cr-1", reservation_type="default", interruptible=False)
    content = SimpleNamespace(
        capacity_type=capacity_type, reservation=reservation if has_reservation else None
    )
    data = {}
    _add_reservation(data, content)
    found = data["CapacityReservationSpecification"]
    assert found["CapacityReservationPreference"] == preference
    assert ("CapacityReservationTarget" in found) is (preference != "none")


NOTHING = {
    "size_bytes": None,
    "delete_on_termination": None,
    "encrypted": None,
    "volume_type": "",
    "iops": 0,
    "throughput": 0,
    "kms_key_id": "",
    "snapshot_id": "",
    "volume_initialization_rate": None,
}


@pytest.mark.parametrize(
    ("field", "value", "name", "sent"),
    [
        ("iops", 3000, "Iops", 3000),
        ("throughput", 125, "Throughput", 125),
        ("volume_type", "gp3", "VolumeType", "gp3"),
        ("kms_key_id", "key", "KmsKeyId", "key"),
        ("snapshot_id", "snap-1", "SnapshotId", "snap-1"),
        ("size_bytes", 2**30 + 1, "VolumeSize", 2),
        ("encrypted", False, "Encrypted", False),
    ],
)
def test_only_what_a_volume_has_is_sent(field, value, name, sent):
    assert _volume(SimpleNamespace(**NOTHING)) == {}
    assert _volume(SimpleNamespace(**{**NOTHING, field: value})) == {name: sent}


@pytest.mark.parametrize(
    ("last_used", "holds", "busy", "now", "is_taken"),
    [
        (0.0, 0, False, 60.0, True),
        (0.0, 0, False, 59.0, False),
        (None, 0, False, 60.0, False),
        (0.0, 1, False, 60.0, False),
        (0.0, 0, True, 60.0, False),
    ],
)
def test_a_template_is_deleted_that_nobody_uses(last_used, holds, busy, now, is_taken):
    templates = SimpleNamespace(
        _lock=nullcontext(),
        _last_used={} if last_used is None else {"t": last_used},
        _holds={"t": holds},
        _busy={"t": "future"} if busy else {},
        _clock=SimpleNamespace(monotonic=lambda: now),
        _unused_seconds=60.0,
    )
    taken = ClusterLaunchTemplates._take_idle(templates, "t")
    assert taken == (last_used if is_taken else None)
    assert ("t" in templates._last_used) is (last_used is not None and not is_taken)
    assert ("t" in templates._busy) is (is_taken or busy)


def test_only_texts_are_left_out_of_a_model():
    part = {"documentation": "text", "shape": "s", "members": [{"documentation": {"shape": "x"}}]}
    kept = {"shape": "s", "members": [{"documentation": {"shape": "x"}}]}
    assert _with_shared_texts(part, without="documentation") == kept


@pytest.mark.parametrize(
    ("prefixes", "places", "fits"), [(0, 0, True), (1, 2, True), (2, 2, False)]
)
def test_a_prefix_takes_the_place_of_an_address(prefixes, places, fits):
    info = SimpleNamespace(ena=True, ipv4_per_interface=places, efa_max_interfaces=None)
    assert (_interfaces_misfit(info, (), prefixes) == "") is fits


@pytest.mark.parametrize(
    ("subnets", "instance_type", "capacity", "memory"),
    [
        (["s"], "m5.large", {"memory": 5}, [5]),
        (["s"], "m5.large", {}, [0]),
        ([], "m5.large", {}, []),
        (["s"], "", {}, []),
        (None, "m5.large", {}, []),
    ],
)
def test_memory_is_learned_of_a_known_type_and_class(subnets, instance_type, capacity, memory):
    learned = []
    found = None if subnets is None else SimpleNamespace(status=SimpleNamespace(subnets=subnets))

    def learn_memory(*_, memory_bytes, **__):
        learned.append(memory_bytes)
        return True

    types = SimpleNamespace(
        _node_classes=SimpleNamespace(node_class=lambda _name: found),
        _catalogue=SimpleNamespace(learn_memory=learn_memory),
        _situation=lambda _node_class: None,
    )
    claim = SimpleNamespace(
        spec=SimpleNamespace(node_class_ref=SimpleNamespace(name="default")),
        status=SimpleNamespace(image_id="ami-1"),
    )
    node = SimpleNamespace(labels={INSTANCE_TYPE: instance_type}, capacity=capacity)
    assert CurrentInstanceTypes.learn_memory(types, claim, node) is bool(memory)
    assert learned == memory


@pytest.mark.parametrize(
    ("name", "provider_id", "is_refused"),
    [
        ("i-0123456789abcdef0", "aws:///a/i-0123456789abcdef0", False),
        ("i-0123456789abcdef0.ec2.internal", "aws:///a/i-0123456789abcdef1", True),
        ("i-0123456789abcdef0.ec2.internal", "", False),
        ("ip-10-0-0-1.ec2.internal", "aws:///a/i-0123456789abcdef0", False),
    ],
)
def test_a_node_with_the_name_of_another_instance_is_refused(name, provider_id, is_refused):
    claim = SimpleNamespace(status=SimpleNamespace(provider_id=provider_id))
    refusal = refusal_of_other_id(claim, SimpleNamespace(name=name))
    assert (refusal is not None) is is_refused


@pytest.mark.parametrize(("price", "amount"), [(None, 0.0), (Price(2.0, "USD"), 0.0000002)])
def test_a_reservation_costs_next_to_nothing(price, amount):
    """It is paid whether or not it is used: of several the cheapest on demand is used first."""
    zone = SimpleNamespace(zone="a", zone_id="euw1-az1")
    reservation = CapacityReservation.model_validate(
        {
            "id": "cr-0123456789abcdef0",
            "availabilityZone": "a",
            "instanceType": "m5.large",
            "instanceMatchCriteria": "open",
            "ownerID": "123456789012",
        }
    )
    sold = SimpleNamespace(
        name="m5.large", zones=[zone], reservations=[reservation], is_compatible=True
    )
    market = SimpleNamespace(
        prices=SimpleNamespace(on_demand=lambda _name: price, currency="USD"),
        reserved_left=lambda _id: 1,
        shifted_zones=frozenset(),
    )
    (offering,) = reserved_offerings(sold, (), market)
    assert offering.price.currency == "USD"
    assert offering.price.amount == pytest.approx(amount)
    assert offering.available


class Moves:
    """A draft that notes what becomes of fields."""

    def __init__(self, **fields):
        self.fields = fields
        self.done = []

    def get(self, path):
        return self.fields.get(path.rpartition(".")[2])

    def move(self, path, to, *, value="same", reason="", into=None):
        del reason, into
        self.done.append(("move", path.rpartition(".")[2], to, value))

    def add(self, path, value, reason):
        del reason
        self.done.append(("add", path, value))

    def leave_out(self, path, reason):
        del reason
        self.done.append(("leave out", path.rpartition(".")[2]))

    def warn(self, message):
        self.done.append(("warn", "no alias" in message))


TERMS = [{"tags": {"team": "web"}}]
SELECTED = ("move", "amiSelector", "spec.amiSelectorTerms", TERMS)
KEPT = ("move", "amiFamily", "spec.amiFamily", "same")


@pytest.mark.parametrize(
    ("fields", "done"),
    [
        ({"amiSelector": {"team": "web"}}, [SELECTED, ("add", "spec.amiFamily", "AL2"), KEPT]),
        (
            {"amiSelector": {"team": "web"}, "amiFamily": "Ubuntu"},
            [SELECTED, ("move", "amiFamily", "spec.amiFamily", "AL2"), KEPT],
        ),
        ({"amiSelector": {"team": "web"}, "amiFamily": "Bottlerocket"}, [SELECTED, KEPT]),
        ({"amiFamily": "Ubuntu"}, [("leave out", "amiFamily"), ("warn", True)]),
        (
            {"amiFamily": "AL2"},
            [("move", "amiFamily", "spec.amiSelectorTerms", [{"alias": "al2@latest"}])],
        ),
        (
            {},
            [
                ("add", "spec.amiSelectorTerms", [{"alias": "al2@latest"}]),
                ("move", "amiFamily", "spec.amiSelectorTerms", [{"alias": "al2@latest"}]),
            ],
        ),
    ],
)
def test_images_of_a_template_are_selected_or_have_an_alias(fields, done):
    draft = Moves(**fields)
    node_templates._convert_images(draft, "spec", draft)
    assert draft.done == done


def test_a_range_of_services_that_becomes_known_during_the_call_stays():
    known = []

    def describe_cluster(name):
        known.append("10.0.0.0/16")
        assert network.cidr == "10.0.0.0/16"
        return {"cluster": {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16"}}}

    eks = SimpleNamespace(describe_cluster=describe_cluster)
    network = ServiceNetwork(SimpleNamespace(eks=eks), cluster="web", known=lambda: tuple(known))
    assert network.resolve() == "172.20.0.0/16"
    assert network.cidr == "10.0.0.0/16"
