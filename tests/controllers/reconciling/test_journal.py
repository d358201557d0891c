"""The journal records the decisions in a cluster's life."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

from karpenter_core.api.decisions import (
    Decision,
    DecisionCandidate,
    DecisionLaunch,
    DecisionPlacement,
    decision_document,
)
from karpenter_core.api.prices import Price
from karpenter_core.controllers.reconciling.decision_journal import DecisionJournal
from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.provider.contract import InstanceListing
from karpenter_core.provider.markers import hookimpl
from karpenter_provider_kwok.cloud import KwokCloud
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
DRIFTED = {"spec": {"template": {"metadata": {"labels": {"example.com/new": "yes"}}}}}
ALONE = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "web"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
"""One pod to a node."""


def decision(number, **fields):
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return Decision(id=f"id-{number}", cause="", kind="provision", at=at, summary="", **fields)


def ids(journal, **options):
    return [item.id for item in journal.latest(**options)]


async def test_only_the_last_decisions_are_kept():
    """The ring is bounded."""
    journal = DecisionJournal(size=3)
    for number in range(5):
        await journal.record(decision(number))

    assert ids(journal) == ["id-4", "id-3", "id-2"]


async def test_repeated_idle_decision_is_recorded_once():
    """Until something is done, or the inputs are others."""
    journal = DecisionJournal()
    await journal.record(decision(1, inputs="a"))
    await journal.record(decision(2, inputs="a"))
    await journal.record(decision(3, inputs="b"))
    await journal.record(decision(4, inputs="b", placements=(DecisionPlacement(node="n", pods=1),)))
    await journal.record(decision(5, inputs="b"))

    assert ids(journal) == ["id-5", "id-4", "id-3", "id-1"]


async def test_repeated_refusal_is_recorded_once():
    """A command given up changes nothing; another command on the same inputs is new."""
    journal = DecisionJournal()
    for number, (inputs, claim) in enumerate([("a", "x"), ("a", "y"), ("a", "x"), ("b", "x")]):
        going = DecisionCandidate(
            node="", node_claim=claim, node_pool="", price_per_hour=Price(0.0), pods=0
        )
        await journal.record(
            decision(number, inputs=inputs, rejection="launch", candidates=(going,))
        )

    assert ids(journal) == ["id-3", "id-1", "id-0"]


async def test_sinks_and_observers_get_every_decision():
    """In the order in which they were made."""
    journal, kept, observed = DecisionJournal(), [], []

    async def observe(item):
        observed.append(item.id)

    journal.add_sink(lambda item: kept.append(item.id))
    journal.add_observer(observe)
    await journal.record(decision(1))
    await journal.record(decision(2))

    assert kept == observed == ["id-1", "id-2"]


async def test_refused_claims_are_recorded_once():
    """A brake that is in the way of all of them is met again every ten seconds."""
    journal = DecisionJournal()
    for number, name in enumerate(("", "", "general-abcde")):
        launch = DecisionLaunch(
            node_claim=name,
            node_pool="general",
            instance_type="m",
            zone="zone-a",
            capacity_type="spot",
            instance_types=1,
            price_per_hour=Price(1.0),
            pods=1,
        )
        await journal.record(decision(number, inputs="a", launches=(launch,)))

    assert ids(journal) == ["id-2", "id-0"]


def test_a_plug_in_that_hangs_over_a_record_does_not_keep_a_command_from_being_carried_out(
    tmp_path,
):
    """It is under way before it is recorded."""

    async def scenario(harness):
        running = harness.start()
        harness.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        await harness.settle(lambda: len(harness.pods("Running")) == 1)

        async def hang(item):
            if item.kind == "disrupt":
                await asyncio.Event().wait()

        running.process.runtime.journal.add_observer(hang)
        harness.cluster.scale(DEPLOYMENTS, "web", 0)
        await harness.settle(lambda: not harness.claims())

    run_controller(tmp_path, scenario)


def test_life_of_a_node_is_recorded(tmp_path):
    """The reasons of launch and end, the price, and the ID that names the claim."""
    result = {}

    async def scenario(harness):
        running = harness.start()
        harness.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        await harness.settle(lambda: len(harness.pods("Running")) == 3)
        result["claims"] = harness.claims()
        harness.cluster.scale(DEPLOYMENTS, "web", 0)
        await harness.settle(lambda: not harness.claims())
        result["decisions"] = running.process.runtime.journal.latest()
        result["counted"] = running.metric(
            'karpenter_decisions_total{kind="disrupt",method="emptiness"}'
        )

    run_controller(tmp_path, scenario)
    *_, provisioned = result["decisions"]
    gone = [item for item in result["decisions"] if item.kind == "disrupt"]
    names = {claim["metadata"]["name"] for claim in result["claims"]}
    assert {launch.node_claim for launch in provisioned.launches} == names
    assert {
        claim["metadata"]["annotations"]["karpenter.sh/decision-id"] for claim in result["claims"]
    } == {provisioned.id}
    assert provisioned.price_per_hour_after.amount > 0
    assert provisioned.inputs
    assert {candidate.node_claim for item in gone for candidate in item.candidates} == names
    assert {(item.method, item.reason) for item in gone} == {("emptiness", "Empty")}
    before = sum(item.price_per_hour_before.amount for item in gone)
    assert round(before, 6) == round(provisioned.price_per_hour_after.amount, 6)
    assert result["counted"] == len(gone)


def test_a_process_writes_its_journal_to_a_file(tmp_path):
    """The same records as in memory, oldest first; whole when the process has ended."""
    file, result = tmp_path / "journal" / "decisions.jsonl", {}

    async def scenario(harness):
        running = harness.start("--decision-journal", str(file))
        harness.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        await harness.settle(lambda: len(harness.pods("Running")) == 3)
        result["kept"] = running.process.runtime.journal.latest()
        await running.stop()

    run_controller(tmp_path, scenario)
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert written
    assert written == [decision_document(item) for item in reversed(result["kept"])]


def test_command_rejected_by_validation_is_recorded(tmp_path):
    """The nodes got pods again while the command waited."""
    result = {}

    async def scenario(harness):
        running = harness.start()
        harness.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        await harness.settle(lambda: len(harness.pods("Running")) == 3)
        harness.cluster.scale(DEPLOYMENTS, "web", 0)
        await harness.cluster.clock.sleep(14)  # an empty node is found within 10 s, and waits 15 s
        harness.cluster.scale(DEPLOYMENTS, "web", 3)
        await harness.settle(lambda: len(harness.pods("Running")) == 3)
        await harness.cluster.clock.sleep(20)
        result["claims"] = len(harness.claims())
        result["decisions"] = running.process.runtime.journal.latest(kind="disrupt")

    run_controller(tmp_path, scenario)
    (given_up,) = result["decisions"]
    assert (given_up.method, given_up.rejection) == ("emptiness", "churn")
    assert len(given_up.candidates) == result["claims"] == 3


class Guard:
    """A plug-in that keeps the nodes of one application."""

    @hookimpl
    def karpenter_veto_candidate(self, candidate):
        kept = candidate.labels.get("example.com/keep")
        return "batch job" if kept else None


def played(tmp_path, scenario, *, arguments=(), guard=None):
    """Run a scenario; `guard` is a plug-in beside the provider."""
    plugins = None if guard is None else {"guard": guard}
    run_controller(
        tmp_path, scenario, arguments=("--disable-leader-election", *arguments), plugins=plugins
    )


def forced(found):
    return [
        (item.method, item.reason, [candidate.node_claim for candidate in item.candidates])
        for item in found
        if item.kind == "disrupt"
    ]


def test_expiry_is_recorded(tmp_path):
    """With the pods that have to move, at the price of the node."""
    result = {}

    async def scenario(harness):
        running = harness.start()
        pool = node_pool(disruption=KEEP, template={"expireAfter": "10m"})
        harness.cluster.apply([NODE_CLASS, pool, deployment("web", 1)])
        await harness.settle(lambda: len(harness.pods("Running")) == 1)
        (claim,) = harness.claims()
        result["name"] = claim["metadata"]["name"]
        await harness.settle(
            lambda: result["name"] not in {c["metadata"]["name"] for c in harness.claims()},
            seconds=900,
        )
        result["decisions"] = running.process.runtime.journal.latest()

    played(tmp_path, scenario)
    assert forced(result["decisions"]) == [("expiration", "Expired", [result["name"]])]
    (expired,) = [item for item in result["decisions"] if item.kind == "disrupt"]
    assert [candidate.pods for candidate in expired.candidates] == [1]
    assert expired.price_per_hour_before.amount > 0


def test_claim_that_never_registers_is_recorded(tmp_path):
    """It is given up after its time, and its pods are planned for anew."""
    faults, result = tmp_path / "faults.json", {}
    faults.write_text(json.dumps([{"fault": "failed-node"}]))

    async def scenario(harness):
        running = harness.start("--registration-timeout=3m", f"--kwok-faults-file={faults}")
        harness.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        await harness.settle(lambda: len(harness.claims()) == 1)
        (claim,) = harness.claims()
        result["name"] = claim["metadata"]["name"]
        await harness.settle(
            lambda: result["name"] not in {c["metadata"]["name"] for c in harness.claims()},
            seconds=400,
        )
        result["decisions"] = running.process.runtime.journal.latest()

    played(tmp_path, scenario)
    assert ("liveness", "RegistrationTimeout", [result["name"]]) in forced(result["decisions"])


def test_claim_without_capacity_is_recorded(tmp_path):
    """None of its offerings is available."""
    faults, result = tmp_path / "faults.json", {}
    faults.write_text(json.dumps([{"fault": "stock-out"}]))

    async def scenario(harness):
        running = harness.start(f"--kwok-faults-file={faults}")
        harness.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        await harness.cluster.clock.sleep(30)
        result["decisions"] = running.process.runtime.journal.latest()

    played(tmp_path, scenario)
    assert ("launch", "InsufficientCapacity") in {item[:2] for item in forced(result["decisions"])}


def test_vanished_instance_is_recorded(tmp_path, monkeypatch):
    """Its provider does not list it any more."""
    result = {}

    async def scenario(harness):
        running = harness.start()
        harness.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        await harness.settle(lambda: len(harness.pods("Running")) == 1)
        (claim,) = harness.claims()
        result["name"] = claim["metadata"]["name"]
        monkeypatch.setattr(KwokCloud, "list", lambda self: InstanceListing(instances=()))
        harness.cluster.kubelets.fail(result["name"])
        await harness.settle(
            lambda: result["name"] not in {c["metadata"]["name"] for c in harness.claims()},
            seconds=400,
        )
        result["decisions"] = running.process.runtime.journal.latest()

    played(tmp_path, scenario)
    assert ("garbage-collection", "GarbageCollected", [result["name"]]) in forced(
        result["decisions"]
    )


def test_veto_of_a_plug_in_is_recorded(tmp_path):
    """Once, however often the same is found."""
    result = {}
    kept = {"metadata": {"labels": {"example.com/keep": "yes"}}}

    async def scenario(harness):
        running = harness.start()
        pool = node_pool()
        pool["spec"]["template"] |= kept
        harness.cluster.apply([NODE_CLASS, pool, deployment("web", 1)])
        await harness.settle(lambda: len(harness.pods("Running")) == 1)
        harness.cluster.scale(DEPLOYMENTS, "web", 0)
        await harness.cluster.clock.sleep(300)
        result["claims"] = len(harness.claims())
        result["decisions"] = running.process.runtime.journal.latest(kind="disrupt")

    played(tmp_path, scenario, guard=Guard())
    (kept_back,) = result["decisions"]
    assert (result["claims"], kept_back.rejection) == (1, "veto")
    assert (kept_back.obstacles[0].reason, kept_back.obstacles[0].message) == (
        "veto", "guard: batch job",
    )  # fmt: skip


def test_veto_of_one_candidate_spares_no_other(tmp_path):
    """The record is of what goes, at its price, and says who was kept."""
    result = {}

    async def scenario(harness):
        running = harness.start()
        kept = node_pool("kept")
        kept["spec"]["template"]["metadata"] = {"labels": {"example.com/keep": "yes"}}
        harness.cluster.apply([NODE_CLASS, node_pool(), kept])
        for name in ("general", "kept"):
            harness.cluster.apply(
                [deployment(name, 1, nodeSelector={"karpenter.sh/nodepool": name})]
            )
        await harness.settle(lambda: len(harness.pods("Running")) == 2)
        prices = [
            launch.price_per_hour.amount
            for item in running.process.runtime.journal.latest(kind="provision")
            for launch in item.launches
        ]
        result["price"] = prices[0]
        harness.cluster.scale(DEPLOYMENTS, "general", 0)
        harness.cluster.scale(DEPLOYMENTS, "kept", 0)
        await harness.settle(lambda: len(harness.claims()) == 1)
        result["decisions"] = running.process.runtime.journal.latest(kind="disrupt")

    played(tmp_path, scenario, guard=Guard())
    (gone,) = [item for item in result["decisions"] if not item.rejection]
    assert [candidate.node_pool for candidate in gone.candidates] == ["general"]
    assert round(gone.price_per_hour_before.amount, 9) == round(result["price"], 9)
    assert [item.message for item in gone.obstacles] == ["guard: batch job"]


def test_refused_replacement_is_recorded(tmp_path):
    """With the setting that forbids it."""
    result = {}

    async def scenario(harness):
        running = harness.start("--launches-per-minute=1")
        harness.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP)])
        harness.cluster.apply([deployment("web", 2, affinity=ALONE)])
        await harness.settle(lambda: len(harness.pods("Running")) == 2)
        await harness.cluster.clock.sleep(90)
        harness.cluster.server.registry.patch(NODE_POOLS, DRIFTED, "general", "")
        await harness.cluster.clock.sleep(60)
        result["decisions"] = running.process.runtime.journal.latest(kind="disrupt")

    played(tmp_path, scenario)
    started, *others = reversed(result["decisions"])
    assert (started.method, started.rejection) == ("drift", "")
    refused = next(item for item in others if item.rejection)
    assert (refused.method, refused.rejection) == ("drift", "launch")
    assert refused.obstacles[0].names == ("general",)
    assert "--launches-per-minute" in refused.obstacles[0].message


def test_rolled_back_command_is_recorded(tmp_path):
    """Under the id under which its beginning is, with the reason why."""
    faults, result = tmp_path / "faults.json", {}
    faults.write_text("[]")

    async def scenario(harness):
        running = harness.start(f"--kwok-faults-file={faults}")
        harness.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
        await harness.settle(lambda: len(harness.pods("Running")) == 1)
        await harness.cluster.clock.sleep(30)
        (old,) = harness.claims()
        faults.write_text(json.dumps([{"fault": "failed-node"}]))
        harness.cluster.server.registry.patch(NODE_POOLS, DRIFTED, "general", "")
        await harness.settle(lambda: len(harness.claims()) == 2)
        (result["new"],) = {claim["metadata"]["name"] for claim in harness.claims()} - {
            old["metadata"]["name"]
        }
        await harness.cluster.clock.sleep(16 * 60)
        result["decisions"] = running.process.runtime.journal.latest(kind="disrupt")

    played(tmp_path, scenario)
    started = result["decisions"][-1]
    (taken_back,) = [each for each in result["decisions"][:-1] if each.id == started.id]
    assert (started.method, started.failure) == ("drift", "")
    assert taken_back.failure == f"replacement {result['new']} failed"
    assert taken_back.at > started.at


def test_the_journal_names_the_limit_that_leaves_pods(tmp_path):
    """The plan had claims for them that were not created."""
    result = {}

    async def scenario(harness):
        running = harness.start("--max-nodes-total=1")
        harness.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3, affinity=ALONE)])
        await harness.settle(lambda: len(harness.pods("Running")) == 1)
        result["decisions"] = running.process.runtime.journal.latest(kind="provision")

    played(tmp_path, scenario)
    first = result["decisions"][-1]
    (left,) = first.obstacles
    assert (left.kind, left.reason, left.count) == ("Pod", "limit", 2)
    assert "--max-nodes-total" in left.message
