"""Tests one instance per claim (PC-030 to PC-037, PC-084, PC-086, case 149)."""

from __future__ import annotations

import pytest

from karpenter_core.errors import (
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
    ThrottledError,
)
from karpenter_core.provider.contract import LaunchedInstance, TerminationStatus
from karpenter_simulated_aws.throttling import AWS_RATES
from providers.aws.tests.launch.processes import ON_DEMAND, claim_of, node_class_of


def ids(outcomes):
    return [outcome.provider_id.rpartition("/")[2] for outcome in outcomes]


def owners(process):
    """Return tokens of the instances that are listed, by instance id."""
    return {
        instance.provider_id.rpartition("/")[2]: instance.token
        for instance in process.instances.list().instances
    }


def wave(count, *requirements):
    return [claim_of(f"web-{n}", *(requirements or (ON_DEMAND,))) for n in range(count)]


def test_equal_claims_share_a_fleet_and_each_has_an_instance(aws, process, node_class):
    claims = wave(5)

    outcomes = process.launch(*claims, node_class=node_class)

    assert all(isinstance(outcome, LaunchedInstance) for outcome in outcomes)
    assert len(set(ids(outcomes))) == 5
    (call,) = aws.calls.of("CreateFleet")
    assert call.parameters["TargetCapacitySpecification"]["TotalTargetCapacity"] == 5
    assert owners(process) == {
        instance_id: claim.uid for instance_id, claim in zip(ids(outcomes), claims, strict=True)
    }


def test_claims_with_different_requests_have_separate_fleets(aws, process, node_class):
    one, other = claim_of("a", ON_DEMAND), claim_of("b", ON_DEMAND, pool="batch")

    process.launch(one, other, node_class=node_class)

    assert aws.calls.count("CreateFleet") == 2


def test_another_process_assigns_the_instances_alike(process, make_process, node_class):
    outcomes = process.launch(*wave(5), node_class=node_class)

    assert owners(make_process()) == owners(process)
    assert make_process().launch(*wave(5), node_class=node_class) == outcomes


def test_a_short_fleet_serves_some_claims(aws, process, node_class):
    """Case 149."""
    aws.capacity.limit_vcpus(6)

    outcomes = process.launch(
        *wave(5, ON_DEMAND, ("node.kubernetes.io/instance-type", "m5.large")),
        node_class=node_class,
    )

    served = [outcome for outcome in outcomes if isinstance(outcome, LaunchedInstance)]
    assert len(served) == 3
    left = [outcome for outcome in outcomes if outcome not in served]
    assert all(isinstance(outcome, InsufficientCapacityError) for outcome in left)


def test_a_repeated_token_launches_nothing(aws, process, make_process, node_class):
    claim = claim_of("twice", ON_DEMAND)

    first = process.launch_one(claim, node_class)

    assert process.launch_one(claim, node_class) == first
    assert make_process().launch_one(claim, node_class) == first
    assert aws.calls.count("CreateFleet") == 1


def test_a_repeated_token_before_ec2_lists_its_instance(aws, process, node_class):
    aws.behaviour.invisible_seconds = 60
    claim = claim_of("unseen", ON_DEMAND)

    first = process.launch_one(claim, node_class)

    assert process.launch_one(claim, node_class) == first
    assert list(owners(process).values()) == [claim.uid]
    (found,) = process.instances.fetch([first.provider_id])
    assert found.token == claim.uid
    (ended,) = process.instances.terminate([first.provider_id])
    assert isinstance(ended, CloudProviderError)


@pytest.mark.parametrize("same_process", [True, False])
def test_a_lost_reply_launches_no_second_instance(
    aws, process, make_process, node_class, same_process: bool
):
    claims = wave(3)
    with aws.lose_replies("CreateFleet", times=None):
        lost = process.launch(*claims, node_class=node_class)
    assert all(isinstance(outcome, CloudProviderError) for outcome in lost)

    after = process if same_process else make_process()
    outcomes = after.launch(*claims, node_class=node_class)

    assert len(set(ids(outcomes))) == 3
    assert len(aws.instances.all) == 3
    assert sorted(owners(after).values()) == sorted(claim.uid for claim in claims)


def test_one_call_lists_instances_of_two_hundred_claims(aws, process, make_process, node_class):
    """By filters that are documented; a single claim takes one call as well."""
    claims = wave(200)
    outcomes = process.launch(*claims, node_class=node_class)
    restarted = make_process()
    aws.calls.clear()

    assert ids(restarted.launch(*claims, node_class=node_class)) == ids(outcomes)
    assert aws.calls.count("DescribeInstances") == 1
    (call,) = aws.calls.of("DescribeInstances")
    assert {one["Name"] for one in call.parameters["Filters"]} == {
        "tag:eks:eks-cluster-name",
        "tag:karpenter.k8s.aws/nodeclaim-index",
    }
    assert aws.calls.count("CreateFleet") == 0


def test_claims_with_the_same_code_are_distinguished(aws, process, node_class, monkeypatch):
    monkeypatch.setattr("karpenter_provider_aws.instance_tags._code", lambda _: "same")
    first = process.launch_one(claim_of("one", ON_DEMAND), node_class)

    second = process.launch_one(claim_of("two", ON_DEMAND), node_class)

    assert len({first.provider_id, second.provider_id}) == 2
    assert set(owners(process).values()) == {"uid-of-one", "uid-of-two"}


def test_a_lost_launch_reply_is_repeated_while_ec2_does_not_list_the_instance(
    aws, process, node_class
):
    """Claims come back one by one, and the fleet was for all of them."""
    aws.behaviour.invisible_seconds = 60
    claims = wave(3)
    with aws.lose_replies("CreateFleet", times=None):
        process.launch(*claims, node_class=node_class)

    outcomes = [process.launch_one(claim, node_class) for claim in reversed(claims)]

    assert len(set(ids(outcomes))) == 3
    assert len(aws.instances.all) == 3


@pytest.mark.parametrize(("code", "status"), [("RequestLimitExceeded", 503), ("ExpiredToken", 400)])
def test_a_lost_reply_is_repeated_through_refusals_that_say_nothing_of_it(
    aws, process, node_class, code, status
):
    """Throttling and refused credentials do not say whether the first call was carried out."""
    aws.behaviour.invisible_seconds = 60
    claims = wave(3)
    with aws.lose_replies("CreateFleet", times=None):
        process.launch(*claims, node_class=node_class)
    with aws.fail("CreateFleet", code=code, status=status, times=None):
        refused = process.launch(*claims, node_class=node_class)
    assert {type(outcome) for outcome in refused} == {CloudProviderError}, "not: nothing was done"

    outcomes = [process.launch_one(claim, node_class) for claim in reversed(claims)]

    assert len(set(ids(outcomes))) == 3
    assert len(aws.instances.all) == 3


def test_a_call_that_never_arrived_is_made_when_it_is_repeated(aws, process, node_class):
    claims = wave(2)
    with aws.cut_off("CreateFleet"):
        process.launch(*claims, node_class=node_class)
    assert not aws.instances.all

    outcomes = process.launch(*claims, node_class=node_class)

    assert len(set(ids(outcomes))) == 2


def test_a_token_whose_instance_is_gone_is_refused(aws, process, make_process, node_class):
    claim = claim_of("gone", ON_DEMAND)
    first = process.launch_one(claim, node_class)
    while process.instances.terminate([first.provider_id]) != [TerminationStatus.GONE]:
        pass

    for each in (process, make_process()):
        refused = each.launch_one(claim, node_class)
        assert isinstance(refused, LaunchFailedError)
        assert refused.reason == "InstanceTerminated"
    assert aws.calls.count("CreateFleet") == 1


def test_a_terminating_instance_no_longer_serves_its_claim(aws, process, node_class):
    aws.behaviour.terminating_seconds = 3600
    claim = claim_of("leaving", ON_DEMAND)
    first = process.launch_one(claim, node_class)
    aws.terminate(first.provider_id)

    refused = process.launch_one(claim, node_class)

    assert isinstance(refused, LaunchFailedError)
    assert refused.reason == "InstanceTerminated"


def test_claims_of_two_versions_of_a_node_class_are_launched_from_their_own(
    aws, process, node_class
):
    """The NodeClass has changed between two claims of one batch."""
    images = sorted(i.id for i in aws.images.all if i.architecture == "x86_64" and not i.windows)
    amis = tuple(ami.model_copy(update={"id": images[-1]}) for ami in node_class.status.amis)
    changed = node_class.model_copy(
        update={
            "metadata": node_class.metadata.model_copy(update={"resource_version": "2"}),
            "status": node_class.status.model_copy(update={"amis": amis}),
        }
    )
    before, after = (
        process.request(claim_of("before", ON_DEMAND), node_class),
        process.request(claim_of("after", ON_DEMAND), changed),
    )

    outcomes = process.launcher.launch([before, after])

    assert [o.image_id for o in outcomes] == [node_class.status.amis[0].id, images[-1]]


def test_a_node_class_with_many_tags_has_smaller_fleets(aws, clients, process):
    """EC2 takes fifty tags of an instance; claim tags have to fit with the others."""
    tagged = node_class_of(aws, clients, tags={f"team-{number}": "web" for number in range(38)})
    claims = [claim_of(f"{'web' * 20}-{number}", ON_DEMAND) for number in range(51)]

    outcomes = process.launch(*claims, node_class=tagged)

    assert {type(outcome) for outcome in outcomes} == {LaunchedInstance}
    assert aws.calls.count("CreateFleet") > 1


def test_a_lost_instance_of_one_claim_changes_no_other_claim(process, make_process, node_class):
    claims = wave(4)
    outcomes = process.launch(*claims, node_class=node_class)
    before = owners(process)
    gone = ids(outcomes)[1]
    process.instances.terminate([outcomes[1].provider_id])
    process.instances.terminate([outcomes[1].provider_id])

    after = owners(make_process())

    assert after == {key: uid for key, uid in before.items() if key != gone}


def test_an_instance_of_a_provider_id_belongs_to_that_claim_alone(
    aws, process, make_process, node_class
):
    """The process died while it wrote down what it had launched, and EC2 shows only a part of it.

    By tags alone the listed instances would be assigned again, in their order.
    """
    first, second, third = claims = sorted(wave(3), key=lambda claim: claim.uid)
    outcomes = process.launch(*claims, node_class=node_class)
    restarted = make_process()
    restarted.write_down(second, outcomes[0].provider_id)

    again = restarted.launch(first, third, node_class=node_class)

    assert sorted(ids(again)) == sorted(ids(outcomes)[1:])
    assert owners(restarted)[ids(outcomes)[0]] == second.uid
    assert len(aws.instances.all) == 3


def test_a_second_instance_of_a_claim_is_surplus(process, make_process, node_class):
    """So that it is collected."""
    first, _ = claims = sorted(wave(2), key=lambda claim: claim.uid)
    outcomes = process.launch(*claims, node_class=node_class)
    restarted = make_process()
    for claim in claims:
        restarted.write_down(claim, outcomes[0].provider_id if claim is first else "aws:///a/i-0")

    assert owners(restarted) == {ids(outcomes)[0]: first.uid, ids(outcomes)[1]: ""}


def test_surplus_names_the_claims_of_its_launch(process, make_process, node_class):
    """It has no claim, and is reported as surplus of our own launch."""
    first, _ = claims = sorted(wave(2), key=lambda claim: claim.uid)
    used, surplus = process.launch(*claims, node_class=node_class)
    restarted = make_process()
    for claim in claims:
        restarted.write_down(claim, used.provider_id if claim is first else "aws:///a/i-0")

    listed = {each.provider_id: each for each in restarted.instances.list().instances}

    assert listed[surplus.provider_id].token == ""
    assert set(listed[surplus.provider_id].launched_for) == {claim.uid for claim in claims}


def test_a_definite_refusal_gets_a_new_token(aws, process, node_class):
    """PC-086: the token of the first call would bring its answer again."""
    claim = claim_of("later", ON_DEMAND)
    fault = aws.fail_pools(code="InternalError")
    first = process.launch_one(claim, node_class)
    assert isinstance(first, LaunchFailedError)
    fault.times = 0

    assert isinstance(process.launch_one(claim, node_class), LaunchedInstance)


def test_throttling_does_nothing_and_leaves_the_wait_to_the_core(aws, process, node_class):
    claim = claim_of("throttled", ON_DEMAND)
    with aws.fail("CreateFleet", code="RequestLimitExceeded", status=503, times=None):
        outcome = process.launch_one(claim, node_class)

    assert isinstance(outcome, ThrottledError)
    assert outcome.retry_after is None, "EC2 gives no time"
    assert not process.unavailable_offerings.view(now=process.clock.now()).offerings
    assert isinstance(process.launch_one(claim, node_class), LaunchedInstance)


def test_nothing_is_launched_while_instances_cannot_be_listed(aws, process, node_class):
    with aws.cut_off("DescribeInstances"), pytest.raises(CloudProviderError):
        process.launch_one(claim_of("blind", ON_DEMAND), node_class)

    assert aws.calls.count("CreateFleet") == 0


def test_a_thousand_launches_at_once_take_few_calls(aws, process, node_class):
    """With the limits of AWS; the calls that change something are what is short."""
    aws.throttling.set(AWS_RATES)
    claims = wave(1000)
    left = claims
    outcomes = {}
    for _ in range(5):
        for claim, outcome in zip(left, process.launch(*left, node_class=node_class), strict=True):
            outcomes[claim.name] = outcome
        left = [c for c in left if not isinstance(outcomes[c.name], LaunchedInstance)]
        if not left:
            break

    assert len(set(ids(outcomes.values()))) == 1000
    assert len(aws.instances.all) == 1000
    assert aws.calls.count("CreateFleet") <= 60
    assert aws.calls.count("CreateLaunchTemplate") <= 5
    assert aws.calls.count("DescribeInstances") <= 10
