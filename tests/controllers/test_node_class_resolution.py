"""NodeClasses are resolved on changes and in time, and finalised."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from karpenter_core.api.base import CustomResource, ObjectMeta
from karpenter_core.api.conditions import Condition
from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.nodeclass.controller import (
    NodeClassController,
    resolved_status,
    unresolved_conditions,
)
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.errors import CloudProviderError, InvalidError
from karpenter_core.kube.wire.kind_codec import InvalidObject
from karpenter_core.provider.contract import NodeClassResolution
from karpenter_core.testing.state_builders import node_claim

KEY = ("example.com", "ExampleClass", "web")


class ExampleClass(NodeClass):
    """A NodeClass of a provider that resolves it."""

    resource = CustomResource(
        group="example.com",
        version="v1",
        kind="ExampleClass",
        plural="exampleclasses",
        singular="exampleclass",
    )


@dataclass
class HandClock:
    """A clock that is moved by hand."""

    seconds: float = 100.0

    def now(self):
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self):
        return self.seconds


@dataclass
class ResolvingProviders:
    """A provider that only resolves, and answers the same each time."""

    answer: NodeClassResolution
    calls: int = 0

    def finalizes(self, _node_class):
        return False

    def resolves(self, _node_class):
        return True

    async def hash_node_class(self, _node_class):
        return None

    async def resolve_node_class(self, _node_class):
        self.calls += 1
        return self.answer


@dataclass
class OneClassState:
    """A snapshot of one NodeClass."""

    node_class: ExampleClass
    node_claims: dict = field(default_factory=dict)

    def snapshot(self):
        return SimpleNamespace(node_classes={KEY: self.node_class}, node_claims=self.node_claims)

    def subscribe(self, *_args):
        return None


def controller(retry_after, clock):
    node_class = ExampleClass(metadata=ObjectMeta(name="web", uid="u-1", generation=1))
    cluster_state = OneClassState(node_class)
    providers = ResolvingProviders(NodeClassResolution(retry_after=retry_after))
    runtime = ControllerRuntime(clock=clock, new_id=lambda: "id", metrics=Metrics())
    writer = SimpleNamespace(cluster_state=cluster_state, kube_writer=None, publish=print)
    return (
        NodeClassController(
            writer=writer, providers=providers, runtime=runtime, claims=LiveClaims()
        ),
        cluster_state,
        providers,
    )


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (None, 300),
        (timedelta(minutes=1), 60),
        (timedelta(hours=1), 300),
        (timedelta(0), 1),
        (timedelta(seconds=-5), 1),
    ],
    ids=["nothing", "a minute", "too long", "at once", "in the past"],
)
async def test_a_provider_may_shorten_the_time_to_the_next_resolution(asked, kept):
    """Within a second and the usual period; what stands until then is not asked for."""
    clock = HandClock()
    subject, _, providers = controller(asked, clock)

    outcome = await subject.reconcile(KEY)
    assert (outcome.requeue_after, providers.calls) == (kept, 1)

    clock.seconds += kept - 0.5
    assert ((await subject.reconcile(KEY)).requeue_after, providers.calls) == (0.5, 1)

    clock.seconds += 0.5
    await subject.reconcile(KEY)
    assert providers.calls == 2


async def test_a_changed_node_class_is_resolved_at_once():
    """An earlier request of its provider does not count."""
    clock = HandClock()
    subject, cluster_state, providers = controller(timedelta(minutes=5), clock)
    await subject.reconcile(KEY)

    metadata = cluster_state.node_class.metadata.model_copy(update={"generation": 2})
    cluster_state.node_class = cluster_state.node_class.model_copy(update={"metadata": metadata})
    await subject.reconcile(KEY)

    assert providers.calls == 2


@dataclass
class Unreachable(ResolvingProviders):
    """A provider whose cloud cannot be reached."""

    error: str = "ec2:DescribeSubnets: the name does not resolve"

    async def resolve_node_class(self, _node_class):
        self.calls += 1
        raise CloudProviderError(self.error)


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "resolved before"])
async def test_a_cloud_that_cannot_be_reached_is_named_by_a_new_node_class(is_known):
    """Else a wrong endpoint of a first installation would show in logs alone."""
    subject, cluster_state, _ = controller(None, HandClock())
    writes = Writes()
    subject._writer.kube_writer = writes
    subject._providers = Unreachable(NodeClassResolution())
    if is_known:
        ready = Condition(type="Ready", status="True", reason="Ready")
        status = cluster_state.node_class.status.model_copy(update={"conditions": (ready,)})
        cluster_state.node_class = cluster_state.node_class.model_copy(update={"status": status})

    with pytest.raises(CloudProviderError, match="DescribeSubnets"):
        await subject.reconcile(KEY)

    if is_known:
        assert writes.bodies == []
        return
    ((condition,),) = (body["status"]["conditions"] for body in writes.bodies)
    assert (condition["type"], condition["status"]) == ("Ready", "Unknown")
    assert condition["reason"] == "ResolutionFailed"
    assert condition["message"] == "ec2:DescribeSubnets: the name does not resolve"


async def test_another_error_of_the_same_outage_replaces_the_first_one():
    """The name resolves again, but the credentials are refused: the first message would mislead."""
    subject, cluster_state, _ = controller(None, HandClock())
    writes = Writes()
    subject._writer.kube_writer = writes
    subject._providers = providers = Unreachable(NodeClassResolution())
    now = datetime(2030, 1, 1, tzinfo=UTC)
    first = unresolved_conditions(
        cluster_state.node_class, CloudProviderError(providers.error), now=now
    )
    status = {"conditions": first}
    cluster_state.node_class = cluster_state.node_class.model_copy(
        update={"status": type(cluster_state.node_class.status).model_validate(status)}
    )

    with pytest.raises(CloudProviderError):
        await subject.reconcile(KEY)
    assert writes.bodies == []  # the same message is not written again

    providers.error = "ec2:DescribeSubnets: the credentials are refused"
    with pytest.raises(CloudProviderError):
        await subject.reconcile(KEY)
    ((condition,),) = (body["status"]["conditions"] for body in writes.bodies)
    assert condition["message"] == providers.error
    assert condition["lastTransitionTime"] == first[0]["lastTransitionTime"]


def test_a_provider_without_conditions_takes_back_that_its_cloud_did_not_answer():
    node_class = ExampleClass(metadata=ObjectMeta(name="web", uid="u-1", generation=1))
    now = datetime(2030, 1, 1, tzinfo=UTC)
    conditions = unresolved_conditions(node_class, CloudProviderError("no answer"), now=now)
    node_class = ExampleClass.model_validate(
        {"metadata": {"name": "web"}, "status": {"conditions": conditions}}
    )

    assert resolved_status(node_class, NodeClassResolution(), now=now) == {"conditions": []}


@dataclass
class FinalizingProviders:
    """A provider that has something to clean up."""

    finalized: list = field(default_factory=list)

    async def finalize_node_class(self, node_class):
        self.finalized.append(node_class.name)


@dataclass
class Writes:
    """Notes what is written."""

    bodies: list = field(default_factory=list)

    async def patch(self, _kind, _name, body, **_options):
        self.bodies.append(body)


class RefusedWrites(Writes):
    """An API server that refuses a status with subnets, as one does whose schema has no such field."""

    async def patch(self, kind, name, body, **options):
        await super().patch(kind, name, body, **options)
        if "subnets" in body["status"]:
            raise InvalidError("subnets: Too many: 5000: must have at most 100 items", status=422)


async def refused_status(writes, *, entries):
    """Return the condition of a NodeClass whose status is not stored, and the writes of the next try."""
    clock = HandClock()
    subject, cluster_state, providers = controller(None, clock)
    subject._writer.kube_writer = writes
    subnets = [{"id": f"subnet-{number:017d}", "zone": "north-1a"} for number in range(entries)]
    ready = Condition(type="Ready", status="True", reason="Ready")
    providers.answer = NodeClassResolution(status={"subnets": subnets}, conditions=(ready,))

    outcome = await subject.reconcile(KEY)

    assert outcome.requeue_after == 300  # not at once: the answer would be the same
    written = writes.bodies.pop()["status"]
    status = type(cluster_state.node_class.status).model_validate(written)
    cluster_state.node_class = cluster_state.node_class.model_copy(update={"status": status})
    writes.bodies.clear()
    clock.seconds += 300
    await subject.reconcile(KEY)
    (condition,) = written["conditions"]
    return condition, writes.bodies


async def test_a_status_too_large_to_be_stored_is_named_and_not_sent():
    """One that selects every subnet or image of a region: etcd refuses it with an internal error."""
    condition, later = await refused_status(Writes(), entries=30_000)

    assert (condition["type"], condition["status"]) == ("Ready", "Unknown")
    assert condition["reason"] == "ResolutionFailed"
    assert condition["message"].startswith("the status would have ")
    assert "of them in subnets in 30000 entries" in condition["message"]
    assert condition["message"].endswith("make the terms of the spec that select subnets narrower")
    assert later == []


async def test_a_status_that_the_api_server_refuses_is_named():
    condition, later = await refused_status(RefusedWrites(), entries=5)

    assert (condition["type"], condition["status"]) == ("Ready", "Unknown")
    assert condition["message"] == (
        "the status is refused: subnets: Too many: 5000: must have at most 100 items"
    )
    assert ["subnets" in body["status"] for body in later] == [
        True
    ]  # the condition is there already


@dataclass
class LiveClaims:
    """The NodeClaims of the API server, and those that cannot be read."""

    claims: list = field(default_factory=list)
    unreadable: list = field(default_factory=list)

    async def read_all(self):
        return self.claims, self.unreadable


FINALIZERS = ("example.com/termination", "example.org/other")


def leaving(claims, live=None, finalizers=FINALIZERS):
    """Return the controller of a NodeClass that is being deleted, and what it does."""
    group, kind, name = KEY
    ref = NodeClassRef(group=group, kind=kind, name=name)
    metadata = ObjectMeta(
        name=name,
        uid="u-1",
        finalizers=finalizers,
        deletion_timestamp=datetime(2030, 1, 1, tzinfo=UTC),
    )
    cluster_state = OneClassState(
        ExampleClass(metadata=metadata),
        {n: node_claim(n, node_class_ref=ref) for n in claims}
        | {"else": node_claim("else", node_class_ref=ref.model_copy(update={"name": "else"}))},
    )
    providers, writes, notices = FinalizingProviders(), Writes(), []
    runtime = ControllerRuntime(clock=HandClock(), new_id=lambda: "id", metrics=Metrics())
    writer = SimpleNamespace(
        cluster_state=cluster_state, kube_writer=writes, publish=notices.append
    )
    subject = NodeClassController(
        writer=writer, providers=providers, runtime=runtime, claims=live or LiveClaims()
    )
    return subject, providers, writes, notices


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (1, "claim-0"),
        (5, "claim-0, claim-1, claim-2, claim-3, claim-4"),
        (7, "claim-0, claim-1, claim-2, claim-3, claim-4 and 2 other(s)"),
    ],
)
async def test_a_deleted_node_class_waits_for_its_claims_and_says_so(count, told):
    """Nothing is cleaned up under the feet of nodes that run."""
    subject, providers, writes, notices = leaving([f"claim-{n}" for n in range(count)])

    outcome = await subject.reconcile(KEY)

    assert outcome.requeue_after == 10
    assert (providers.finalized, writes.bodies) == ([], [])
    (notice,) = notices
    assert (notice.regarding.kind, notice.regarding.name) == ("ExampleClass", "web")
    assert (notice.type, notice.reason) == ("Normal", "WaitingOnNodeClaimTermination")
    assert notice.message == f"Waiting on NodeClaim termination for {told}"


async def test_a_deleted_node_class_waits_for_a_claim_that_the_watch_has_not_shown():
    group, kind, name = KEY
    ref = NodeClassRef(group=group, kind=kind, name=name)
    live = LiveClaims(
        claims=[
            node_claim("late", node_class_ref=ref),
            node_claim("else", node_class_ref=ref.model_copy(update={"name": "else"})),
        ]
    )
    subject, providers, _, notices = leaving([], live)

    outcome = await subject.reconcile(KEY)

    assert (outcome.requeue_after, providers.finalized) == (10, [])
    assert [each.message for each in notices] == ["Waiting on NodeClaim termination for late"]


async def test_a_deleted_node_class_waits_for_a_claim_that_cannot_be_read():
    """Its node may run on what the provider would delete."""
    unreadable = InvalidObject(
        kind="NodeClaim", name="odd", message="spec: Input should be an object"
    )
    subject, providers, _, notices = leaving([], LiveClaims(unreadable=[unreadable]))

    outcome = await subject.reconcile(KEY)

    assert (outcome.requeue_after, providers.finalized) == (10, [])
    assert [each.message for each in notices] == ["Waiting on NodeClaim termination for odd"]


async def test_a_deleted_node_class_without_claims_is_cleaned_up_and_removed():
    """Of the finalizers only ours goes."""
    subject, providers, writes, notices = leaving([])

    await subject.reconcile(KEY)

    assert providers.finalized == ["web"]
    assert writes.bodies == [{"metadata": {"finalizers": ["example.org/other"]}}]
    assert notices == []


async def test_a_deleted_node_class_without_our_finalizer_is_left_alone():
    """It was cleaned up, and another controller keeps it."""
    subject, providers, writes, notices = leaving([], finalizers=FINALIZERS[1:])

    outcome = await subject.reconcile(KEY)

    assert (outcome.requeue_after, providers.finalized, writes.bodies, notices) == (
        None,
        [],
        [],
        [],
    )
