"""A Node in a partition placement group has its partition label before registration (specification, 8.7)."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.errors import ApiError, AuthError, CloudProviderError
from karpenter_core.testing import state_builders
from karpenter_core.testing.provider_world import FakeNodes, ProviderWorld
from karpenter_provider_aws.labels import PLACEMENT_GROUP_ID, PLACEMENT_GROUP_PARTITION
from karpenter_provider_aws.registration import GATE, PartitionGate, refusal_of_other_id
from karpenter_simulated_aws.testing import node_class_for, subject_on
from providers.aws.tests.launch.processes import ON_DEMAND, claim_of, launched_claim, node_class_of


class Registration:
    """The claims of one process on their way to become Nodes."""

    def __init__(self, aws, clients, process):
        self.aws, self.clients, self.process = aws, clients, process
        self.nodes = FakeNodes()
        self.gate = PartitionGate(reader=process.reader, groups=process.groups, nodes=self.nodes)

    def boot(self, *requirements, name="racked", **spec):
        """Launch an instance, and make its Node."""
        node_class = node_class_of(self.aws, self.clients, **spec)
        claim = claim_of(name, ON_DEMAND, *requirements)
        claim = launched_claim(claim, self.process.launch_one(claim, node_class))
        manifest = {
            "metadata": {"name": name, "labels": {}},
            "spec": {"providerID": claim.status.provider_id},
        }
        asyncio.run(self.nodes.create(manifest))
        return claim

    def hold(self, claim):
        """Ask the gate about a claim's Node as it is now."""
        return asyncio.run(self.gate.hold(claim, self.nodes()[claim.name]))

    def partition(self, claim):
        return self.nodes()[claim.name].labels.get(PLACEMENT_GROUP_PARTITION)


@pytest.fixture
def registration(aws, clients, process):
    return Registration(aws, clients, process)


@pytest.fixture
def racks(aws):
    return aws.placement_groups.add("racks", strategy="partition", partitions=3)


IN_RACKS = {"placementGroupSelector": {"name": "racks"}}


@pytest.mark.usefixtures("racks")
def test_the_partition_that_ec2_chose_is_on_the_node_before_it_is_let_in(aws, registration):
    claims = [registration.boot(name=f"n{n}", **IN_RACKS) for n in range(3)]

    held = [registration.hold(claim) for claim in claims]

    assert [gate.name for gate in held] == [GATE] * 3
    chosen = [str(aws.instance(claim.status.provider_id).partition) for claim in claims]
    assert sorted(chosen) == ["1", "2", "3"]
    assert [registration.partition(claim) for claim in claims] == chosen
    assert [registration.hold(claim) for claim in claims] == [None] * 3


@pytest.mark.usefixtures("racks")
def test_a_node_waits_until_ec2_lists_its_instance(aws, registration):
    aws.behaviour.invisible_seconds = 30
    claim = registration.boot(**IN_RACKS)

    early = registration.hold(claim)
    assert registration.partition(claim) is None
    aws.time.advance(31)
    registration.hold(claim)

    assert early.name == GATE
    assert registration.partition(claim) is not None
    assert registration.hold(claim) is None


@pytest.mark.usefixtures("racks")
def test_a_requested_partition_needs_no_call(aws, registration):
    claim = registration.boot((PLACEMENT_GROUP_PARTITION, "2"), **IN_RACKS)
    before = aws.calls.count("DescribeInstances")

    assert registration.hold(claim) is None
    assert aws.calls.count("DescribeInstances") == before


def test_only_partitions_are_waited_for(aws, registration):
    aws.placement_groups.add("apart", strategy="spread")
    apart = registration.boot(name="apart", placementGroupSelector={"name": "apart"})
    plain = registration.boot(name="plain")
    before = aws.calls.count("DescribeInstances")

    assert registration.hold(apart) is None
    assert registration.hold(plain) is None
    assert aws.calls.count("DescribeInstances") == before


def test_a_group_that_is_gone_holds_nothing_back(registration):
    claim = registration.boot()
    labels = {**claim.metadata.labels, PLACEMENT_GROUP_ID: "pg-0123456789abcdef0"}
    metadata = claim.metadata.model_copy(update={"labels": labels})

    assert registration.hold(claim.model_copy(update={"metadata": metadata})) is None


@pytest.mark.usefixtures("racks")
def test_a_refusal_lets_nothing_in(aws, registration):
    claim = registration.boot(**IN_RACKS)

    with aws.deny("DescribeInstances"), pytest.raises(AuthError, match="DescribeInstances"):
        registration.hold(claim)

    assert registration.partition(claim) is None


@pytest.mark.usefixtures("racks")
def test_a_node_that_cannot_be_written_is_a_delay(registration):
    claim = registration.boot(**IN_RACKS)
    registration.nodes.failures.append(ApiError("denied by a webhook", status=403))

    with pytest.raises(CloudProviderError, match=r"racked.*webhook"):
        registration.hold(claim)


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("i-0123456789abcdef0", False),
        ("i-0123456789abcdef0.ec2.internal", False),
        ("ip-10-0-0-1.ec2.internal", False),
        ("i-0fffffffffffffff0", True),
        ("i-0fffffffffffffff0.ec2.internal", True),
    ],
)
def test_a_node_named_after_another_instance_is_refused(name, refused):
    claim = state_builders.node_claim(
        stage="Launched", provider_id="aws:///us-west-2a/i-0123456789abcdef0"
    )

    answer = refusal_of_other_id(claim, state_builders.node(name, claim=claim))

    assert (answer is not None) == refused


def test_the_core_is_answered_by_the_plug_in(few_types_aws, few_types_shared, tmp_path):
    few_types_aws.placement_groups.add("racks", strategy="partition", partitions=3)
    subject = subject_on(few_types_aws, shared=few_types_shared)

    async def scenario():
        async with ProviderWorld(
            plugins={"aws": subject.make()}, cache_folder=tmp_path, settings=subject.settings
        ) as world:
            request = await world.request("racked", node_class_for(few_types_aws, **IN_RACKS))
            outcome = await world.launch(request)
            claim = launched_claim(request.node_claim, outcome)
            node = await world.nodes.create(few_types_aws.node(outcome.provider_id))
            gate = await world.providers.gate_registration(claim, node)
            labelled = world.nodes()[node.name]
            return gate, labelled, await world.providers.gate_registration(claim, labelled)

    gate, labelled, then = asyncio.run(scenario())

    assert gate.name == GATE
    assert labelled.labels[PLACEMENT_GROUP_PARTITION] in {"1", "2", "3"}
    assert then is None
