"""Consumers wait for stale kinds and are woken when these are fresh."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.api.notices import ObjectRef
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.reconciling.freshness import (
    REQUIRED_KINDS,
    FreshnessConsumer,
    FreshnessGuard,
    stale_wait_notice,
)
from karpenter_core.kube.contact import StaleKind
from karpenter_core.kube.resources import NODES, PODS, STORAGE_CLASSES, custom_kind
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.controllers.contacts import Contacts
from tests.controllers.whole_controller import GROUP

NODE_CLASSES = custom_kind(KWOKNodeClass.resource)


def gate(contacts=None, registry=None):
    return FreshnessGuard(
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
                FreshnessConsumer.DISRUPTION, FreshnessConsumer.DRAIN, FreshnessConsumer.INSTANCE_TERMINATION,
                FreshnessConsumer.GARBAGE_COLLECTION, FreshnessConsumer.EXPIRATION, FreshnessConsumer.LEADERSHIP,
                FreshnessConsumer.STATIC_DEPROVISIONING,
            },
        ),
        (NODES, set(FreshnessConsumer) - {FreshnessConsumer.DRIFT}),
        (NODE_CLAIMS, set(FreshnessConsumer)),
        (NODE_CLASSES, {FreshnessConsumer.DISRUPTION, FreshnessConsumer.DRIFT, FreshnessConsumer.LEADERSHIP}),
        (STORAGE_CLASSES, {FreshnessConsumer.DISRUPTION, FreshnessConsumer.LEADERSHIP}),
    ],
)  # fmt: skip
def test_a_stale_kind_holds_back_those_that_read_it(kind, waiting):
    """And no other controllers."""
    contacts = Contacts()
    contacts.lose(kind)
    freshness = gate(contacts)
    assert {each for each in FreshnessConsumer if freshness.stale_for(each)} == waiting


def test_every_consumer_declares_its_required_kinds():
    """A table without a row would let its consumer pass whatever is stale."""
    assert set(REQUIRED_KINDS) == set(FreshnessConsumer)
    assert all(needs.all_kinds or needs.kinds for needs in REQUIRED_KINDS.values())


def test_consumer_is_woken_once_when_all_its_kinds_are_fresh():
    """However often it asked meanwhile; another one's key is another one."""
    contacts, woken = Contacts(), []
    freshness = gate(contacts)
    contacts.lose(PODS)
    contacts.lose(NODES)
    for key in ("a", "b", "a"):
        assert freshness.stale_or_wake(
            FreshnessConsumer.DRAIN, key, lambda key=key: woken.append(key)
        )
    assert freshness.stale_or_wake(FreshnessConsumer.REPAIR, "r", lambda: woken.append("r"))
    contacts.regain(NODES)
    assert woken == ["r"]
    contacts.regain(PODS)
    assert woken == ["r", "a", "b"]
    contacts.lose(PODS)
    contacts.regain(PODS)
    assert woken == ["r", "a", "b"]


def test_waiting_consumers_are_a_metric():
    """One series for each consumer, from the start."""
    contacts, registry = Contacts(), CollectorRegistry()
    freshness = gate(contacts, registry)

    def waiting():
        name = "karpenter_core_waiting_for_freshness"
        return {
            each.value
            for each in FreshnessConsumer
            if registry.get_sample_value(name, {"consumer": each.value}) == 1
        }

    assert waiting() == set()
    contacts.lose(NODES)
    freshness.stale_or_wake(FreshnessConsumer.REPAIR, "a", lambda: None)
    assert waiting() == {"repair"}
    contacts.regain(NODES)
    assert waiting() == set()


def test_waiting_ends_with_the_last_stale_kind():
    """A wait that is over at once takes no turn."""

    async def scenario():
        contacts = Contacts()
        freshness = gate(contacts)
        await freshness.wait_until_fresh(FreshnessConsumer.LEADERSHIP)
        contacts.lose(PODS)
        contacts.lose(NODES)
        waiting = asyncio.ensure_future(freshness.wait_until_fresh(FreshnessConsumer.LEADERSHIP))
        await asyncio.sleep(0)
        contacts.regain(PODS)
        await asyncio.sleep(0)
        assert not waiting.done()
        contacts.regain(NODES)
        await waiting

    asyncio.run(scenario())


def test_the_event_names_kind_time_and_cause():
    """So that a reader does not need the log."""
    stale = (
        StaleKind(kind=PODS, seconds=123.4, problem="list pods: forbidden"),
        StaleKind(kind=NODES, seconds=None, problem=""),
    )
    notice = stale_wait_notice(ObjectRef(api_version="v1", kind="Node", name="web"), stale)
    assert notice.message == (
        "Termination waits until the API server shows these kinds again: "
        "pods (silent for 123 s: list pods: forbidden), nodes (never listed)"
    )


def test_the_page_lists_the_required_kinds_of_each_consumer():
    """The table of docs/design/freshness.md, row by row."""
    page = Path(__file__).parents[3] / "docs" / "design" / "freshness.md"
    rows = [line.split("|")[1:-1] for line in page.read_text().splitlines() if "| `" in line]
    told = {row[0].strip().strip("`"): row[2].strip() for row in rows}
    assert told == {consumer.value: _told(needs) for consumer, needs in REQUIRED_KINDS.items()}


def _told(needs):
    if needs.all_kinds:
        return "everything"
    classes = ["NodeClasses"] if needs.node_classes else []
    return ", ".join([*classes, *sorted(kind.plural for kind in needs.kinds)])
