"""The client token of a launch covers all that the call asks for but its user data."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_alibabacloud.discovery.vswitches import ZonalVSwitch
from karpenter_provider_alibabacloud.launch.requests import (
    LaunchCallSpec,
    client_token,
    group_request,
    run_request,
)
from karpenter_provider_alibabacloud.launch.targets import LaunchTarget
from providers.alibabacloud.tests.launch.processes import (
    GROUP,
    IMAGES,
    LARGE,
    ON_DEMAND,
    ONLY_LARGE,
    RUN,
    SPOT,
    Process,
    claim_of,
    class_of,
)

CLAIMS = (ClaimRef(name="web-a", uid="uid-a"), ClaimRef(name="web-b", uid="uid-b"))
USER_DATA = {("UserData",), ("LaunchConfiguration", "UserData")}
EVERY_OPTION = {
    "dataDisks": [{"volumeSize": "40Gi", "device": "/dev/xvdb", "encrypted": True}],
    "deploymentSetId": "ds-1",
    "internetMaxBandwidthOut": 5,
    "keyPairName": "admins",
    "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2},
    "ramRoleName": "nodes",
    "resourceGroupId": "rg-1",
    "spot": {"priceLimit": 9.5, "durationHours": 0, "allocationStrategy": "capacity-optimized"},
    "systemDisk": {"categories": ["cloud_essd", "cloud_auto"], "encrypted": True},
}


@pytest.fixture
def wanted(process):
    """Everything that a NodeClass can ask for, of two vSwitches."""
    node_class = class_of(process.cloud, **EVERY_OPTION)
    it = process.types(node_class)[LARGE]
    spot = [each for each in it.offerings if each.capacity_type == "spot"][:2]
    return LaunchCallSpec(
        node_class=node_class,
        capacity_type="spot",
        targets=tuple(
            LaunchTarget(
                instance_type=it,
                offering=offering,
                vswitch=ZonalVSwitch(process.cloud.world.vswitches[offering.zone], offering.zone),
                image_id=image_id,
            )
            for offering, image_id in zip(spot, IMAGES.values(), strict=True)
        ),
        amount=2,
        user_data="IyEvYmluL3NoCg==",
        tags={"team": "web"},
        category="cloud_essd",
        has_own_prices=False,
    )


def leaves(value, path=()):
    """Yield the path of each single value of a request."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from leaves(each, (*path, name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from leaves(each, (*path, number))
    else:
        yield path


def changed(request, path):
    """Return a copy with another value at a path."""
    copied = deepcopy(request)
    *outer, last = path
    found = copied
    for name in outer:
        found = found[name]
    found[last] = f"not {found[last]}"
    return copied


@pytest.mark.parametrize("build", [group_request, run_request], ids=[GROUP, RUN])
def test_every_value_of_a_request_but_user_data_makes_another_token(wanted, build):
    """Another request under a used token is refused, or gets the old answer."""
    request = build(wanted, region="cn-hangzhou")
    token = client_token(request, CLAIMS, {})
    paths = set(leaves(request))
    kept = {path for path in paths if client_token(changed(request, path), CLAIMS, {}) == token}

    assert len(paths) > 20
    assert kept
    assert kept <= USER_DATA


@pytest.mark.parametrize("build", [group_request, run_request], ids=[GROUP, RUN])
def test_every_parameter_that_is_left_out_makes_another_token(wanted, build):
    request = build(wanted, region="cn-hangzhou")
    token = client_token(request, CLAIMS, {})

    for name in request.keys() - {"UserData"}:
        without = {key: value for key, value in request.items() if key != name}
        assert client_token(without, CLAIMS, {}) != token, name


@pytest.mark.parametrize("build", [group_request, run_request], ids=[GROUP, RUN])
def test_another_secret_in_the_user_data_makes_no_other_token(wanted, build):
    """Each process has a script of ACK's with another secret, and only one may launch."""
    other = replace(wanted, user_data="IyEvYmluL2Jhc2gK")
    requests = [build(each, region="cn-hangzhou") for each in (wanted, other)]

    assert requests[0] != requests[1]
    assert len({client_token(request, CLAIMS, {}) for request in requests}) == 1


def test_the_token_names_the_claims_in_any_order_and_counts_their_attempts(wanted):
    request = group_request(wanted, region="cn-hangzhou")
    token = client_token(request, CLAIMS, {})

    assert client_token(request, CLAIMS[::-1], {}) == token
    assert client_token(request, CLAIMS[:1], {}) != token
    assert client_token(request, (replace(CLAIMS[0], uid="uid-c"), CLAIMS[1]), {}) != token
    assert client_token(request, CLAIMS, {"uid-b": 1}) != token
    assert client_token(request, CLAIMS, {"uid-of-another": 1}) == token


@pytest.mark.parametrize("wish", [ON_DEMAND, SPOT], ids=["on-demand", "spot"])
@pytest.mark.parametrize("api", [GROUP, RUN])
def test_two_processes_with_other_secrets_make_one_instance(
    cloud, clients, tmp_path, node_class, api, wish
):
    """ECS refuses the second call, whose claim waits until the first one's instance is shown."""
    cloud.behaviour.invisible_seconds = 55
    first, second = (Process(cloud, clients, tmp_path, launch_api=api) for _ in range(2))
    claim = claim_of("a", wish, ONLY_LARGE)

    there = first.launch_one(claim, node_class)
    at_once = second.launch_one(claim, node_class)
    cloud.time.advance(61)
    later = second.launch_one(claim, node_class)

    user_data = {
        str(sent.get("UserData") or sent["LaunchConfiguration"]["UserData"])
        for sent in first.sent(api)
    }
    assert len(user_data) == 2, "the processes do not differ"
    assert "IdempotentParameterMismatch" in str(at_once)
    assert later == there
    assert len(cloud.held().instances) == 1
