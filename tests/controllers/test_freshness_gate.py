"""Who waits for which kinds, and who is woken when."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.api.notices import ObjectRef
from karpenter_core.controllers.freshness import NEEDS, Consumer, Freshness, waiting_notice
from karpenter_core.controllers.metrics import Metrics
from karpenter_core.kube.contact import StaleKind
from karpenter_core.kube.resources import NODES, PODS, STORAGE_CLASSES, custom
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.controllers.contacts import Contacts
from tests.controllers.scenes import GROUP

NODE_CLASSES = custom(KWOKNodeClass.resource)


def gate(contacts=None, registry=None):
    return Freshness(
        contacts or Contacts(),
        metrics=Metrics(registry or CollectorRegistry()),
        node_class_groups=frozenset({GROUP}),
    )


@pytest.mark.parametrize(
    ("kind", "waiting"),
    [
        (
            PODS,
            {
                Consumer.DISRUPTION, Consumer.DRAIN, Consumer.INSTANCE_TERMINATION,
                Consumer.GARBAGE_COLLECTION, Consumer.EXPIRATION, Consumer.LEADERSHIP,
            },
        ),
        (NODES, set(Consumer) - {Consumer.DRIFT}),
        (NODE_CLAIMS, set(Consumer)),
        (NODE_CLASSES, {Consumer.DISRUPTION, Consumer.DRIFT, Consumer.LEADERSHIP}),
        (STORAGE_CLASSES, {Consumer.DISRUPTION, Consumer.LEADERSHIP}),
    ],
)  # fmt: skip
def test_a_stale_kind_holds_back_those_that_read_it(kind, waiting):
    """And nobody else."""
    contacts = Contacts()
    contacts.lose(kind)
    freshness = gate(contacts)
    assert {each for each in Consumer if freshness.stale_for(each)} == waiting


def test_every_consumer_says_what_it_needs():
    """A table without a row would let its consumer pass whatever is stale."""
    assert set(NEEDS) == set(Consumer)
    assert all(needs.everything or needs.kinds for needs in NEEDS.values())


def test_who_was_held_back_is_woken_once_when_all_its_kinds_are_fresh():
    """However often it asked meanwhile; another one's key is another one."""
    contacts, woken = Contacts(), []
    freshness = gate(contacts)
    contacts.lose(PODS)
    contacts.lose(NODES)
    for key in ("a", "b", "a"):
        assert freshness.hold(Consumer.DRAIN, key, lambda key=key: woken.append(key))
    assert freshness.hold(Consumer.REPAIR, "r", lambda: woken.append("r"))
    contacts.regain(NODES)
    assert woken == ["r"]
    contacts.regain(PODS)
    assert woken == ["r", "a", "b"]
    contacts.lose(PODS)
    contacts.regain(PODS)
    assert woken == ["r", "a", "b"]


def test_who_waits_is_a_metric():
    """One series for each consumer, from the start."""
    contacts, registry = Contacts(), CollectorRegistry()
    freshness = gate(contacts, registry)

    def waiting():
        name = "karpenter_core_waiting_for_freshness"
        return {
            each.value
            for each in Consumer
            if registry.get_sample_value(name, {"consumer": each.value}) == 1
        }

    assert waiting() == set()
    contacts.lose(NODES)
    freshness.hold(Consumer.REPAIR, "a", lambda: None)
    assert waiting() == {"repair"}
    contacts.regain(NODES)
    assert waiting() == set()


def test_waiting_ends_with_the_last_stale_kind():
    """A wait that is over at once takes no turn."""

    async def scenario():
        contacts = Contacts()
        freshness = gate(contacts)
        await freshness.wait(Consumer.LEADERSHIP)
        contacts.lose(PODS)
        contacts.lose(NODES)
        waiting = asyncio.ensure_future(freshness.wait(Consumer.LEADERSHIP))
        await asyncio.sleep(0)
        contacts.regain(PODS)
        await asyncio.sleep(0)
        assert not waiting.done()
        contacts.regain(NODES)
        await waiting

    asyncio.run(scenario())


def test_the_event_names_kind_time_and_cause():
    """So that whoever reads it need not look for the log."""
    stale = (
        StaleKind(kind=PODS, seconds=123.4, trouble="list pods: forbidden"),
        StaleKind(kind=NODES, seconds=None),
    )
    notice = waiting_notice(ObjectRef(api_version="v1", kind="Node", name="web"), stale)
    assert notice.message == (
        "Termination waits until the API server shows these kinds again: "
        "pods (silent for 123 s: list pods: forbidden), nodes (never listed)"
    )


def test_the_page_says_what_each_consumer_needs():
    """The table of docs/design/freshness.md, row by row."""
    page = Path(__file__).parents[2] / "docs" / "design" / "freshness.md"
    rows = [line.split("|")[1:-1] for line in page.read_text().splitlines() if "| `" in line]
    told = {row[0].strip().strip("`"): row[2].strip() for row in rows}
    assert told == {consumer.value: _told(needs) for consumer, needs in NEEDS.items()}


def _told(needs):
    if needs.everything:
        return "everything"
    classes = ["NodeClasses"] if needs.node_classes else []
    return ", ".join([*classes, *sorted(kind.plural for kind in needs.kinds)])
