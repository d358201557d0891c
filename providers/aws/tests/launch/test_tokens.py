"""The idempotency token of a fleet changes with the request, and only with it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE
from karpenter_core.provider.catalogue import Offering, Price, Requirements
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_aws.api.nodeclass import Subnet
from karpenter_provider_aws.launch.fleet import (
    FleetOptions,
    LaunchTarget,
    client_token,
    fleet_request,
)
from karpenter_provider_aws.launch.template_data import template_name
from tests.properties import with_examples


@dataclass(frozen=True, kw_only=True)
class FleetParameters:
    """All that a fleet is asked, each with two values that differ."""

    instance_types: tuple[str, ...] = ("m5.large", "c5.large")
    zone: str = "a"
    subnet: str = "subnet-1"
    image: str = "ami-1"
    template: str = "template-1"
    price: float = 0.1
    capacity_type: str = "on-demand"
    reservation_type: str = "default"
    interruptible: bool = False
    has_own_prices: bool = False
    context: str = ""
    tags: tuple[tuple[str, str], ...] = (("team", "web"),)
    claims: tuple[tuple[str, str], ...] = (("web-1", "uid-1"), ("web-2", "uid-2"))
    attempts: tuple[tuple[str, int], ...] = ()


OTHER = FleetParameters(
    instance_types=("m5.large", "m5.xlarge"),
    zone="b",
    subnet="subnet-2",
    image="ami-2",
    template="template-2",
    price=0.2,
    capacity_type="spot",
    reservation_type="capacity-block",
    interruptible=True,
    has_own_prices=True,
    context="arn:context",
    tags=(("team", "data"),),
    claims=(("web-1", "uid-1"), ("web-3", "uid-3")),
    attempts=(("uid-1", 1),),
)
NAMES = [each.name for each in fields(FleetParameters)]
OF_RESERVATIONS = {"reservation_type", "interruptible"}
"""Of other capacity types these say nothing."""


def request(wish):
    requirements = Requirements.from_labels({ZONE: wish.zone, CAPACITY_TYPE: wish.capacity_type})
    targets = [
        LaunchTarget(
            instance_type=name,
            offering=Offering(requirements=requirements, price=Price(wish.price), available=True),
            subnet=Subnet(id=wish.subnet, zone=wish.zone),
            image_id=wish.image,
            template=wish.template,
        )
        for name in wish.instance_types
    ]
    options = FleetOptions(
        capacity_type=wish.capacity_type,
        reservation_type=wish.reservation_type,
        interruptible=wish.interruptible,
        context=wish.context,
        has_own_prices=wish.has_own_prices,
    )
    claims = [ClaimRef(name=name, uid=uid) for name, uid in wish.claims]
    return fleet_request(targets, options, claims, dict(wish.tags), attempts=dict(wish.attempts))


def with_changes(names, *, of):
    return replace(of, **{name: getattr(OTHER, name) for name in names})


def token(wish):
    return request(wish)["ClientToken"]


def test_every_change_of_a_request_changes_its_token():
    reserved = FleetParameters(capacity_type="reserved", template="template-of-a-reservation")
    tokens = {"": token(FleetParameters()), "reserved": token(reserved)}
    for name in NAMES:
        base = reserved if name in OF_RESERVATIONS else FleetParameters()
        tokens[name] = token(with_changes([name], of=base))

    alike = [(a, b) for a, b in combinations(tokens, 2) if tokens[a] == tokens[b]]

    assert alike == []


@given(some=st.sets(st.sampled_from(NAMES)), others=st.sets(st.sampled_from(NAMES)))
@with_examples(100)
def test_tokens_are_equal_where_calls_and_attempts_are_and_nowhere_else(some, others):
    one, two = with_changes(some, of=FleetParameters()), with_changes(others, of=FleetParameters())
    asked = [{**request(wish), "ClientToken": ""} for wish in (one, two)]
    is_same = asked[0] == asked[1] and one.attempts == two.attempts and one.claims == two.claims

    assert (token(one) == token(two)) is is_same


@given(
    st.permutations(FleetParameters().claims), st.permutations([("a", "1"), ("b", "2"), ("c", "3")])
)
@with_examples(100)
def test_the_order_of_claims_and_tags_changes_no_token(claims, tags):
    in_order = FleetParameters(tags=(("a", "1"), ("b", "2"), ("c", "3")))

    assert token(replace(in_order, claims=tuple(claims), tags=tuple(tags))) == token(in_order)


def test_a_token_covers_each_member_of_the_request():
    """Parameters that a later version adds are covered as well."""
    whole = request(
        FleetParameters(context="arn:context", capacity_type="reserved", interruptible=True)
    )
    claims = [ClaimRef(name=name, uid=uid) for name, uid in FleetParameters().claims]
    for name in whole.keys() - {"ClientToken"}:
        less = {key: value for key, value in whole.items() if key != name}
        assert client_token(less, claims, {}) != client_token(whole, claims, {}), name
    assert len(whole["ClientToken"]) <= 64, "the longest token that EC2 accepts"


def test_attempts_of_other_claims_change_no_token():
    assert token(FleetParameters(attempts=(("uid-9", 3),))) == token(FleetParameters())


def test_every_template_field_changes_its_name_and_the_token():
    data = {
        "ImageId": "ami-1",
        "UserData": "c2NyaXB0",
        "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-1"]}],
        "IamInstanceProfile": {"Name": "nodes"},
        "CapacityReservationSpecification": {"CapacityReservationPreference": "none"},
        "MetadataOptions": {"HttpTokens": "required"},
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20}}],
    }
    changed = [
        template_name({**data, key: "other"}, {"team": "web"}, cluster="test") for key in data
    ]
    others = [
        template_name(data, {"team": "web"}, cluster="test"),
        template_name(data, {"team": "data"}, cluster="test"),
        template_name(data, {"team": "web"}, cluster="another"),
    ]

    assert len({*changed, *others}) == len(changed) + len(others)
