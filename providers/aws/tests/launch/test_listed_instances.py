"""Memory of instances between listings: refused terminations, and what was shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.errors import TerminationRefusedError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_provider_aws.instances import ClusterInstances
from karpenter_provider_aws.zonal_shift import ShiftedZones
from providers.aws.tests.launch.processes import ON_DEMAND, claim_of

A = "us-east-1a"


@pytest.fixture(autouse=True)
def small_pages(aws, monkeypatch):
    monkeypatch.setattr("karpenter_provider_aws.described_instances._PAGE_SIZE", 5)
    aws.behaviour.terminating_seconds = 3600


def launched(process, node_class, count):
    claims = [claim_of(f"web-{number:02}", ON_DEMAND) for number in range(count)]
    found = {o.provider_id for o in process.launch(*claims, node_class=node_class)}
    for each in found:  # as after five minutes
        process.recent.forget(each.rpartition("/")[2])
    return [each.provider_id for each in process.aws.instances.all if each.provider_id in found]


def fail_later_pages(aws):
    return aws.fail(
        "DescribeInstances",
        code="InternalError",
        status=500,
        times=None,
        where=lambda parameters: bool(parameters.get("NextToken")),
    )


def terminations(aws):
    return [call.outcome for call in aws.calls.of("TerminateInstances")]


def test_a_refusal_is_remembered_through_a_listing_with_pages_missing(aws, process, node_class):
    """Its instance is asked for alone, so the others end with one call."""
    found = launched(process, node_class, 8)
    aws.protect(found[-1])
    process.instances.terminate([found[-1]])
    with fail_later_pages(aws):
        assert not process.instances.list().complete
    aws.calls.clear()

    outcomes = process.instances.terminate(found)

    assert outcomes[:-1] == [TerminationStatus.STARTED] * 7
    assert isinstance(outcomes[-1], TerminationRefusedError)
    assert terminations(aws) == ["ok", "OperationNotPermitted"]


def test_a_refusal_is_forgotten_with_the_instance_that_is_listed_no_more(aws, process, node_class):
    found = launched(process, node_class, 3)
    aws.protect(found[0])
    process.instances.terminate([found[0]])
    aws.untag(found[0], "eks:eks-cluster-name")
    assert len(process.instances.list().instances) == 2
    aws.calls.clear()

    process.instances.terminate(found)

    assert terminations(aws)[0] == "OperationNotPermitted", "terminated with the others again"


def test_a_partial_listing_keeps_listed_instances(aws, process, node_class):
    found = launched(process, node_class, 8)
    process.instances.list()
    with fail_later_pages(aws):
        process.instances.list()
    process.shifted = ShiftedZones(ids=frozenset({"use1-az6"}), names=frozenset({A}))
    aws.calls.clear()
    for each in found:
        aws.untag(each, "eks:eks-cluster-name")

    kept = {each.provider_id for each in process.instances.list().instances}

    assert kept == {each for each in found if f"/{A}/" in each}
    assert kept


def test_a_cached_listing_says_the_time_that_it_shows(process, node_class, monkeypatch):
    (found,) = launched(process, node_class, 1)
    described = replace(process.reader.of_cluster(), as_of=process.clock.now())
    monkeypatch.setattr(process.reader, "of_cluster", lambda: described)
    assert process.instances.list().as_of == described.as_of

    process.shifted = ShiftedZones(names=frozenset({A}))
    listing = process.instances.list()

    assert listing.as_of == described.as_of
    assert [each.provider_id for each in listing.instances] == [found]


def test_each_termination_that_is_refused_is_counted_where_it_is(aws, process, node_class):
    found = launched(process, node_class, 3)
    counted = []
    instances = ClusterInstances(
        process.clients,
        process.clock,
        reader=process.reader,
        recent=process.recent,
        owners=dict,
        reservation_counts=process.reservation_counts,
        count_failure=lambda **labels: counted.append(labels),
    )
    aws.protect(found[1])

    instances.terminate(found)

    instance = aws.instance(found[1])
    assert counted == [{"zone": instance.zone, "zone_id": instance.zone_id}]
