"""A thousand launches at once take few calls and give one instance per claim.

Acceptance cases 61, 67, 68 and 80 at the size of a large cluster.
"""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError, InsufficientCapacityError
from karpenter_core.provider.contract import LaunchedInstance, TerminationStatus
from karpenter_core.provider.kit.simulated.faults import CloudFault, CloudFaultKind
from karpenter_core.provider.kit.simulated.pools import InstancePool
from providers.alibabacloud.tests.launch.processes import (
    GROUP,
    LARGE,
    ON_DEMAND,
    ONLY_LARGE,
    Process,
    claim_of,
    class_of,
)
from tests.support.run_selection import others_as_cluster_runs

MANY = 1000
MOST_CALLS = 20
"""For a thousand: the tags of one tell of 56 claims whose NodePool's name is short."""


@pytest.fixture(scope="module")
def claims():
    return [claim_of(f"{each:04}", ON_DEMAND, ONLY_LARGE) for each in range(MANY)]


@pytest.fixture
def restarted(cloud, clients, tmp_path):
    """A second process, which knows nothing of the first."""
    return Process(cloud, clients, tmp_path)


@pytest.fixture
def node_class(cloud):
    """A NodeClass with vSwitch addresses for the pods of a thousand instances."""
    wide = {
        zone: cloud.networks.add_vswitch(
            cloud.world.vpc_id, zone=zone, cidr=f"10.{number}.0.0/16"
        ).id
        for number, zone in enumerate(cloud.world.vswitches, start=100)
    }
    status = {"vSwitches": [{"id": each, "zoneID": zone} for zone, each in wide.items()]}
    return class_of(cloud, status=status, tags={"team": "web"})


def ends(process, launched):
    """Terminate all until they are gone."""
    for _ in range(2):
        outcomes = [
            outcome
            for first in range(0, len(launched), 500)
            for outcome in process.instances.terminate(launched[first : first + 500])
        ]
    return set(outcomes)


def test_a_thousand_claims_get_an_instance_each_by_few_calls(
    process, restarted, node_class, claims
):
    """Also in the eyes of a process that knows of them by their tags alone."""
    cloud = process.cloud

    outcomes = process.launch(*claims, node_class=node_class)

    launched = [outcome.provider_id for outcome in outcomes]
    assert len(set(launched)) == MANY
    assert len(process.sent()) <= MOST_CALLS
    assert len({sent["ClientToken"] for sent in process.sent()}) == len(process.sent())
    assert cloud.calls.count("DescribeInstances") == 1

    cloud.calls.clear()
    listing = restarted.instances.list()
    assert listing.complete
    # Ten pages by tag, and all of the region's, as tags find no more than a thousand.
    assert cloud.calls.count("DescribeInstances") == 2 * MANY / 100
    found = {each.provider_id: each for each in listing.instances}
    ours = {
        f"kubernetes.io/cluster/{cloud.world.cluster}": "owned",
        "ecs:ecs-cluster-id": cloud.world.cluster,
        "karpenter.sh/nodepool": "web",
        "karpenter.k8s.alibabacloud/ecsnodeclass": "default",
        "team": "web",
    }
    for claim, provider_id in zip(claims, launched, strict=True):
        assert (found[provider_id].node_claim, found[provider_id].token) == (claim.name, claim.uid)
        tags = cloud.instance(provider_id).tags
        assert ours.items() <= tags.items()
        assert len(tags) <= 20

    cloud.calls.clear()
    assert ends(process, launched) == {TerminationStatus.GONE}
    assert cloud.calls.count("DeleteInstances") <= MANY / 100
    assert not cloud.held().all


def test_a_thousand_launches_use_all_available_stock(process, node_class, claims):
    """The others get insufficient capacity; no instance is without a claim."""
    cloud = process.cloud
    for zone in cloud.world.zones:
        pool = InstancePool(capacity_type="on-demand", instance_type=LARGE, zone=zone)
        cloud.capacity.stock(pool, 200)

    outcomes = process.launch(*claims, node_class=node_class)

    launched = [each.provider_id for each in outcomes if isinstance(each, LaunchedInstance)]
    short = [each for each in outcomes if isinstance(each, InsufficientCapacityError)]
    assert (len(launched), len(short)) == (600, 400)
    assert len(set(launched)) == 600
    held = {cloud.instances.provider_id(cloud.instance(each)) for each in cloud.held().instances}
    assert held == set(launched)
    listed = {each.token: each.provider_id for each in process.instances.list().instances}
    for claim, outcome in zip(claims, outcomes, strict=True):
        assert listed.get(claim.uid) == getattr(outcome, "provider_id", None)
    assert ends(process, launched) == {TerminationStatus.GONE}
    assert not cloud.held().all


@pytest.mark.parametrize("who", others_as_cluster_runs(["itself", "another process"]))
@pytest.mark.parametrize("stock", [None, 600], ids=["stock", "too little stock"])
def test_replies_that_are_lost_among_a_thousand_launches_cost_nothing(
    process, restarted, node_class, claims, who, stock
):
    """Instances of a lost reply are found again, by the same call or by their tags."""
    cloud = process.cloud
    if stock is not None:
        cloud.capacity.sell_out(capacity_type="on-demand")
        pool = InstancePool(
            capacity_type="on-demand", instance_type=LARGE, zone=cloud.world.zones[0]
        )
        cloud.capacity.stock(pool, stock)
    lost = CloudFault(
        kind=CloudFaultKind.LOST_REPLY,
        action=GROUP,
        where=lambda parameters: str(parameters["ClientToken"])[0] in "01234567",
    )
    with cloud.faults.add(lost):
        first = process.launch(*claims, node_class=node_class)
    ids_by_uid = {
        claim.uid: outcome.provider_id
        for claim, outcome in zip(claims, first, strict=True)
        if isinstance(outcome, LaunchedInstance)
    }
    assert lost.struck
    assert 0 < len(ids_by_uid) < len(cloud.held().instances)
    assert {type(it) for it in first} <= {
        LaunchedInstance,
        CloudProviderError,
        InsufficientCapacityError,
    }

    process.clock.forward(61)
    asked = process if who == "itself" else restarted
    outcomes = asked.launch(*claims, node_class=node_class)

    launched = [it.provider_id for it in outcomes if isinstance(it, LaunchedInstance)]
    assert len(set(launched)) == len(launched) == (stock or MANY)
    assert len(cloud.held().instances) == len(launched)
    for claim, outcome in zip(claims, outcomes, strict=True):
        if claim.uid in ids_by_uid:
            assert outcome.provider_id == ids_by_uid[claim.uid]
    assert ends(asked, launched) == {TerminationStatus.GONE}
    assert not cloud.held().all
