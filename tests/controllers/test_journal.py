"""What the journal keeps and hands on, and what a cluster's life leaves in it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from karpenter_core.api.decisions import Decision, DecisionPlacement, decision_document
from karpenter_core.controllers.journal import Journal
from karpenter_core.kube.resources import DEPLOYMENTS
from tests.controllers.scenes import NODE_CLASS, deployment, node_pool, play


def decision(number, **fields):
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return Decision(id=f"id-{number}", cause="", kind="provision", at=at, summary="", **fields)


def ids(journal, **options):
    return [item.id for item in journal.latest(**options)]


async def test_only_the_last_decisions_are_kept():
    """The ring is bounded."""
    journal = Journal(size=3)
    for number in range(5):
        await journal.record(decision(number))

    assert ids(journal) == ["id-4", "id-3", "id-2"]


async def test_the_same_nothing_is_put_on_record_once():
    """Until something is done, or the inputs are others."""
    journal = Journal()
    await journal.record(decision(1, inputs="a"))
    await journal.record(decision(2, inputs="a"))
    await journal.record(decision(3, inputs="b"))
    await journal.record(
        decision(4, inputs="b", placements=(DecisionPlacement(machine="n", pods=1),))
    )
    await journal.record(decision(5, inputs="b"))

    assert ids(journal) == ["id-5", "id-4", "id-3", "id-1"]


async def test_keepers_and_observers_see_every_record():
    """In the order in which they were made."""
    journal, kept, observed = Journal(), [], []

    async def observe(item):
        observed.append(item.id)

    journal.keep(lambda item: kept.append(item.id))
    journal.observe(observe)
    await journal.record(decision(1))
    await journal.record(decision(2))

    assert kept == observed == ["id-1", "id-2"]


def test_the_life_of_a_node_is_on_record(tmp_path):
    """Why it came, why it went, at what price, and by which id its claim is known."""
    found = {}

    async def story(harness):
        running = harness.start()
        harness.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        await harness.settle(lambda: len(harness.pods("Running")) == 3)
        found["claims"] = harness.claims()
        harness.cluster.scale(DEPLOYMENTS, "web", 0)
        await harness.settle(lambda: not harness.claims())
        found["decisions"] = running.process.runtime.journal.latest()
        found["counted"] = running.metric(
            'karpenter_decisions_total{kind="disrupt",method="emptiness"}'
        )

    play(tmp_path, story)
    *_, provisioned = found["decisions"]
    gone = [item for item in found["decisions"] if item.kind == "disrupt"]
    names = {claim["metadata"]["name"] for claim in found["claims"]}
    assert {launch.node_claim for launch in provisioned.launches} == names
    assert {
        claim["metadata"]["annotations"]["karpenter.sh/decision-id"] for claim in found["claims"]
    } == {provisioned.id}
    assert provisioned.price_per_hour_after.amount > 0
    assert provisioned.inputs
    assert {candidate.node_claim for item in gone for candidate in item.candidates} == names
    assert {(item.method, item.reason) for item in gone} == {("emptiness", "Empty")}
    before = sum(item.price_per_hour_before.amount for item in gone)
    assert round(before, 6) == round(provisioned.price_per_hour_after.amount, 6)
    assert found["counted"] == len(gone)


def test_a_process_writes_its_journal_to_a_file(tmp_path):
    """The same records as in memory, oldest first; whole when the process has ended."""
    file, found = tmp_path / "journal" / "decisions.jsonl", {}

    async def story(harness):
        running = harness.start("--decision-journal", str(file))
        harness.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        await harness.settle(lambda: len(harness.pods("Running")) == 3)
        found["kept"] = running.process.runtime.journal.latest()
        await running.stop()

    play(tmp_path, story)
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert written
    assert written == [decision_document(item) for item in reversed(found["kept"])]


def test_what_the_second_look_gives_up_is_on_record(tmp_path):
    """The nodes got pods again while the command waited."""
    found = {}

    async def story(harness):
        running = harness.start()
        harness.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        await harness.settle(lambda: len(harness.pods("Running")) == 3)
        harness.cluster.scale(DEPLOYMENTS, "web", 0)
        await harness.cluster.clock.sleep(14)  # an empty node is found within 10 s, and waits 15 s
        harness.cluster.scale(DEPLOYMENTS, "web", 3)
        await harness.settle(lambda: len(harness.pods("Running")) == 3)
        await harness.cluster.clock.sleep(20)
        found["claims"] = len(harness.claims())
        found["decisions"] = running.process.runtime.journal.latest(kind="disrupt")

    play(tmp_path, story)
    (given_up,) = found["decisions"]
    assert (given_up.method, given_up.rejection) == ("emptiness", "churn")
    assert len(given_up.candidates) == found["claims"] == 3
