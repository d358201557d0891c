"""Unused resources are deletable after a grace period, and never by a partial listing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.orphans import OrphanTracker

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_an_entry_unused_for_a_while_is_removable():
    watch = OrphanTracker(grace=MINUTE)
    assert watch.deletable({"a", "b"}, {"a"}, complete=True, now=NOW) == ()
    assert watch.deletable({"a", "b"}, {"a"}, complete=True, now=NOW + MINUTE) == ("b",)


def test_an_entry_used_in_between_waits_again():
    watch = OrphanTracker(grace=MINUTE)
    watch.deletable({"a"}, set(), complete=True, now=NOW)
    watch.deletable({"a"}, {"a"}, complete=True, now=NOW + MINUTE)
    assert watch.deletable({"a"}, set(), complete=True, now=NOW + 1.5 * MINUTE) == ()


def test_a_partial_listing_removes_nothing():
    watch = OrphanTracker(grace=MINUTE)
    watch.deletable({"a"}, set(), complete=True, now=NOW)
    assert watch.deletable({"a"}, set(), complete=False, now=NOW + MINUTE) == ()
    assert watch.deletable({"a"}, set(), complete=True, now=NOW + MINUTE) == ("a",)


def test_suspiciously_many_are_kept_for_long():
    """With a filter that matches nothing everything seems unused; as in an emptied cluster."""
    names = {f"template-{n}" for n in range(30)}
    used = {f"template-{n}" for n in range(18)}
    watch = OrphanTracker(grace=MINUTE, share=0.5, floor=10)
    watch.deletable(names, set(), complete=True, now=NOW)
    assert watch.deletable(names, set(), complete=True, now=NOW + MINUTE) == ()
    assert len(watch.deletable(names, used, complete=True, now=NOW + MINUTE)) == 12
    assert len(watch.deletable(names, used, complete=True, now=NOW + 60 * MINUTE)) == 12


def test_all_of_many_go_at_last():
    names = {f"template-{n}" for n in range(30)}
    watch = OrphanTracker(grace=MINUTE, long_grace=30 * MINUTE)
    watch.deletable(names, set(), complete=True, now=NOW)
    assert watch.deletable(names, set(), complete=True, now=NOW + 29 * MINUTE) == ()
    assert watch.deletable(names, set(), complete=True, now=NOW + 30 * MINUTE) == tuple(
        sorted(names)
    )


def test_an_entry_whose_deletion_failed_comes_last_until_it_is_gone():
    watch = OrphanTracker(grace=MINUTE)
    watch.deletable({"a", "b"}, set(), complete=True, now=NOW)

    def refuse(_thing):
        raise CloudProviderError("locked")

    with pytest.raises(CloudProviderError, match="locked"):
        watch.delete_each(["a", "b"], refuse)
    assert watch.deletable({"a", "b"}, set(), complete=True, now=NOW + MINUTE) == ("b", "a")
    watch.deletable({"b"}, set(), complete=True, now=NOW + MINUTE)
    watch.deletable({"a", "b"}, set(), complete=True, now=NOW + MINUTE)
    assert watch.deletable({"a", "b"}, set(), complete=True, now=NOW + 2 * MINUTE) == ("a", "b")
