"""Instances that are there: acceptance cases 105, 147, 148 and 151, rules PC-040 to PC-052."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError, NodeClaimNotFoundError, ThrottledError
from karpenter_core.provider.contract import Instance, TerminationStatus
from karpenter_provider_aws.described_instances import parse_provider_id
from karpenter_provider_aws.zonal_shift import ShiftedZones
from providers.aws.tests.launch.processes import ON_DEMAND, claim_of, launched_claim, node_of

STRANGER = "aws:///us-east-1a/i-0123456789abcdef0"


def launch(process, node_class, *names):
    """Launch one instance for each name; return the provider IDs."""
    claims = [claim_of(name, ON_DEMAND) for name in names]
    return [outcome.provider_id for outcome in process.launch(*claims, node_class=node_class)]


def listed(process):
    listing = process.instances.list()
    assert listing.complete
    return {instance.provider_id: instance for instance in listing.instances}


def test_instances_are_listed_with_their_claims(process, make_process, node_class, clock):
    """PC-040, PC-070, and what garbage collection needs (case 147)."""
    found = launch(process, node_class, "one", "two")

    for each in (process, make_process()):
        instances = listed(each)
        assert set(instances) == set(found)
        assert {(i.node_claim, i.token) for i in instances.values()} == {
            ("one", "uid-of-one"),
            ("two", "uid-of-two"),
        }
        assert all(i.created is not None and not i.terminating for i in instances.values())


def test_instances_of_others_are_not_listed(aws, clients, process, node_class):
    """Cases 105 and 147, PC-044."""
    found = launch(process, node_class, *(f"n{n}" for n in range(20)))
    for _ in range(10):
        aws.launch_foreign()
    other = aws.launch_foreign(cluster=aws.world.cluster)
    clients.ec2.delete_tags(
        Resources=[parse_provider_id(other)[1]], Tags=[{"Key": "karpenter.sh/nodepool"}]
    )

    assert set(listed(process)) == set(found)


def test_a_listing_with_pages_missing_says_so(aws, process, node_class, monkeypatch):
    """PC-043."""
    monkeypatch.setattr("karpenter_provider_aws.described_instances._PAGE_SIZE", 5)
    launch(process, node_class, *(f"n{n}" for n in range(8)))
    with aws.fail(
        "DescribeInstances",
        code="InternalError",
        status=500,
        times=None,
        where=lambda parameters: "NextToken" in parameters,
    ):
        listing = process.instances.list()

    assert not listing.complete
    assert "InternalError" in listing.problem


def test_a_failed_query_is_no_absence(aws, process, node_class):
    """PC-085."""
    (found,) = launch(process, node_class, "there")
    with aws.cut_off():
        for call in (
            lambda: process.instances.fetch([found]),
            lambda: process.instances.terminate([found]),
            process.instances.list,
        ):
            with pytest.raises(CloudProviderError) as raised:
                call()
            assert not isinstance(raised.value, NodeClaimNotFoundError)


def test_fetching_returns_instances_and_missing_ids(aws, process, node_class):
    """PC-041 and PC-042."""
    aws.behaviour.terminating_seconds = 3600
    one, two = launch(process, node_class, "one", "two")
    process.instances.terminate([two])

    there, leaving, stranger, nonsense = process.instances.fetch([one, two, STRANGER, "kwok://a"])

    assert isinstance(there, Instance)
    assert (there.token, there.terminating) == ("uid-of-one", False)
    assert isinstance(leaving, Instance)
    assert leaving.terminating
    assert isinstance(stranger, NodeClaimNotFoundError)
    assert "kwok://a" in str(nonsense)
    assert not isinstance(nonsense, NodeClaimNotFoundError)


def test_termination_is_started_once_and_ends_in_gone(aws, process, node_class):
    """PC-050 to PC-052."""
    aws.behaviour.terminating_seconds = 3600
    (found,) = launch(process, node_class, "ending")

    assert process.instances.terminate([found, STRANGER]) == [
        TerminationStatus.STARTED,
        TerminationStatus.GONE,
    ]
    assert process.instances.terminate([found]) == [TerminationStatus.STARTED]
    assert aws.calls.count("TerminateInstances") == 1

    aws.behaviour.terminating_seconds = 0
    assert process.instances.terminate([found]) == [TerminationStatus.GONE]
    assert listed(process) == {}


def test_an_unknown_instance_id_does_not_block_the_other_ids(aws, process, node_class):
    found = launch(process, node_class, "one", "two", "three")
    unknown = parse_provider_id(found[1])[1]
    aws.fail(
        "TerminateInstances",
        code="InvalidInstanceID.NotFound",
        message=f"The instance ID '{unknown}' does not exist",
        where=lambda parameters: unknown in parameters["InstanceIds"],
    )

    outcomes = process.instances.terminate(found)

    assert outcomes == [TerminationStatus.STARTED] * 3
    assert process.instances.terminate([found[0], found[2]]) == [TerminationStatus.GONE] * 2
    assert process.instances.terminate([found[1]]) == [TerminationStatus.STARTED]


def test_an_unknown_id_that_ec2_does_not_name_is_found_one_by_one(aws, process, node_class):
    found = launch(process, node_class, "one", "two")
    aws.fail("TerminateInstances", code="InvalidInstanceID.NotFound", message="no such instance")

    assert process.instances.terminate(found) == [TerminationStatus.STARTED] * 2
    assert process.instances.terminate(found) == [TerminationStatus.GONE] * 2


def test_in_a_shifted_zone_no_instance_is_ended_and_the_listing_is_kept(aws, process, node_class):
    """Case 151."""
    (found,) = launch(process, node_class, "shifted")
    zone = parse_provider_id(found)[0]
    before = listed(process)
    process.shifted = ShiftedZones(names=frozenset({zone}))
    aws.terminate(found)
    aws.calls.clear()

    (ended,) = process.instances.terminate([found])
    assert isinstance(ended, CloudProviderError)
    assert process.instances.fetch([found]) == [before[found]]
    assert aws.calls.count("DescribeInstances") == 0
    assert listed(process) == before
    process.shifted = ShiftedZones()
    assert listed(process) == {}


def test_an_instance_that_was_reported_gone_is_not_shown_again_by_a_shift(aws, process, node_class):
    (found,) = launch(process, node_class, "shifted")
    assert found in listed(process)
    assert process.instances.terminate([found]) == [TerminationStatus.STARTED]
    assert process.instances.terminate([found]) == [TerminationStatus.GONE]

    process.shifted = ShiftedZones(names=frozenset({parse_provider_id(found)[0]}))

    assert listed(process) == {}


def tags_of(aws, provider_id):
    return aws.instance(provider_id).tags


def test_missing_tags_are_added_and_no_others(aws, clients, process, node_class):
    """Case 148."""
    claims = [claim_of(name, ON_DEMAND) for name in ("one", "two")]
    outcomes = process.launch(*claims, node_class=node_class)
    claim = launched_claim(claims[0], outcomes[0])
    clients.ec2.create_tags(
        Resources=[parse_provider_id(outcomes[0].provider_id)[1]],
        Tags=[{"Key": "Name", "Value": "of the user"}],
    )
    before = len(aws.calls.of("CreateTags"))

    process.tagger.sync(claim, node_of(outcomes[0]))
    process.tagger.sync(claim, node_of(outcomes[0]))

    tags = tags_of(aws, outcomes[0].provider_id)
    assert tags["Name"] == "of the user"
    assert tags["karpenter.sh/nodeclaim"] == "one"
    assert len(aws.calls.of("CreateTags")) == before + 1


def test_tags_are_added_once_a_second(aws, process, node_class, clock):
    """Case 148: callers that wait get the delay, and follow in order."""
    claims = [claim_of(f"n{n}", ON_DEMAND) for n in range(3)]
    outcomes = process.launch(*claims, node_class=node_class)
    pairs = [(launched_claim(c, o), node_of(o)) for c, o in zip(claims, outcomes, strict=True)]

    process.tagger.sync(*pairs[0])
    for number, pair in enumerate(pairs[1:], start=1):
        with pytest.raises(ThrottledError) as raised:
            process.tagger.sync(*pair)
        assert raised.value.retry_after.total_seconds() == pytest.approx(number)
    assert aws.calls.count("CreateTags") == 1

    clock.forward(seconds=1)
    process.tagger.sync(*pairs[1])
    with pytest.raises(ThrottledError):
        process.tagger.sync(*pairs[2])
    clock.forward(seconds=1)
    process.tagger.sync(*pairs[2])
    assert aws.calls.count("CreateTags") == 3


@pytest.mark.parametrize("is_restarted", [False, True], ids=["the same process", "a new process"])
def test_many_fresh_nodes_are_tagged_for_a_handful_of_reads(
    aws, process, make_process, node_class, clock, is_restarted
):
    claims = [claim_of(f"fresh-{number:03}", ON_DEMAND) for number in range(200)]
    outcomes = process.launch(*claims, node_class=node_class)
    pairs = [
        (launched_claim(claim, outcome), node_of(outcome, f"node-of-{claim.name}"))
        for claim, outcome in zip(claims, outcomes, strict=True)
    ]
    tagger = process.tagger
    if is_restarted:
        other = make_process()
        other.nodes = tuple(parse_provider_id(node.provider_id)[1] for _, node in pairs)
        tagger = other.tagger
    aws.calls.clear()

    for _ in range(len(pairs)):
        for pair in tuple(pairs):
            try:
                tagger.sync(*pair)
                pairs.remove(pair)
            except ThrottledError:
                continue
        clock.forward(seconds=1)

    assert pairs == []
    assert {tags_of(aws, o.provider_id)["Name"] for o in outcomes} == {
        f"node-of-{claim.name}" for claim in claims
    }
    assert aws.calls.count("DescribeInstances") <= 2


def test_tagged_instances_cost_a_new_process_no_call(aws, process, make_process, node_class):
    claim = claim_of("tagged", ON_DEMAND)
    outcome = process.launch_one(claim, node_class)
    process.tagger.sync(launched_claim(claim, outcome), node_of(outcome))
    other = make_process()
    other.instances.list()
    aws.calls.clear()

    other.tagger.sync(launched_claim(claim, outcome), node_of(outcome))

    assert not aws.calls.all


def test_an_instance_that_is_gone_needs_no_tags(aws, process, node_class):
    claim = claim_of("gone", ON_DEMAND)
    outcome = process.launch_one(claim, node_class)
    aws.terminate(outcome.provider_id)

    process.tagger.sync(launched_claim(claim, outcome), node_of(outcome))

    assert aws.calls.count("CreateTags") == 0


def test_a_failed_call_for_tags_is_made_again(aws, process, node_class, clock):
    """The error of EC2 does not say that the instance is gone."""
    claim = claim_of("unlucky", ON_DEMAND)
    outcome = process.launch_one(claim, node_class)
    launched = launched_claim(claim, outcome)

    with (
        aws.fail("CreateTags", code="InternalError", status=500, times=None),
        pytest.raises(CloudProviderError),
    ):
        process.tagger.sync(launched, node_of(outcome))
    clock.forward(seconds=1)
    process.tagger.sync(launched, node_of(outcome))

    assert tags_of(aws, outcome.provider_id)["karpenter.sh/nodeclaim"] == "unlucky"


def test_claims_without_a_node_or_that_are_going_are_not_tagged(aws, process, node_class):
    """Case 148."""
    claim = claim_of("early", ON_DEMAND)
    outcome = process.launch_one(claim, node_class)
    launched = launched_claim(claim, outcome)
    going = launched.metadata.model_copy(update={"deletion_timestamp": process.clock.now()})
    aws.calls.clear()

    process.tagger.sync(launched, node_of(outcome, name=""))
    process.tagger.sync(launched.model_copy(update={"metadata": going}), node_of(outcome))

    assert not aws.calls.all
    process.tagger.sync(launched, node_of(outcome))
    assert aws.calls.count("CreateTags") == 1


def test_in_a_shifted_zone_nothing_is_tagged(aws, process, node_class):
    """Case 151."""
    claim = claim_of("shifted", ON_DEMAND)
    outcome = process.launch_one(claim, node_class)
    process.shifted = ShiftedZones(names=frozenset({outcome.zone}))

    with pytest.raises(CloudProviderError, match=outcome.zone):
        process.tagger.sync(launched_claim(claim, outcome), node_of(outcome))


def test_in_a_shifted_zone_an_instance_with_all_its_tags_is_no_error(aws, process, node_class):
    claim = claim_of("tagged", ON_DEMAND)
    outcome = process.launch_one(claim, node_class)
    process.tagger.sync(launched_claim(claim, outcome), node_of(outcome))
    process.instances.list()
    process.shifted = ShiftedZones(names=frozenset({outcome.zone}))
    aws.calls.clear()

    process.tagger.sync(launched_claim(claim, outcome), node_of(outcome))

    assert not aws.calls.all


def test_ids_of_another_cloud_are_errors_and_keep_no_instance_from_its_end(process, node_class):
    outcome = process.launch_one(claim_of("web", ON_DEMAND), node_class)
    foreign, ended, odd = process.instances.terminate(["gce://1", outcome.provider_id, "odd"])
    assert ended is TerminationStatus.STARTED
    for name, error in (("gce://1", foreign), ("odd", odd)):
        assert isinstance(error, CloudProviderError)
        assert f'provider ID "{name}" is not like aws:///' in str(error)
