"""Selector terms become queries, and answers are cached."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.node_class.discovery import QueryTerm, absent_terms, tag_text
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_aws.discovery.queries import DescribeFilter, DiscoveryQuery, tag_filters
from providers.aws.tests.discovery.moto_world import HandClock
from tests.properties import with_examples


def absent(wanted, names):
    query = DiscoveryQuery(filters=(), terms=(QueryTerm("term", wanted),))
    return bool(absent_terms([query], [names], keys=lambda name: (name,)))


@pytest.mark.parametrize(
    ("wanted", "names", "missing"),
    [
        ("web", ["web"], False),
        ("web", ["web-1"], True),
        ("web-*", ["web-1"], False),
        ("web-?", ["web-12"], True),
        ("w.b*", ["web"], True),
        ("[a]*", ["[a]b"], False),
        ("*", [], True),
        ("", ["anything"], False),
        ("", [], True),
    ],
)
def test_a_term_is_met_by_a_name_that_its_wildcards_match(wanted, names, missing):
    """A `*` is any text, a `?` one character, all else itself."""
    assert absent(wanted, names) is missing


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1)))
@with_examples(100)
def test_tags_are_requested_in_a_fixed_order(tags):
    """So that equal terms have equal queries; each key once."""
    shuffled = dict(reversed(tags.items()))

    assert tag_filters(tags) == tag_filters(shuffled)
    assert len(tag_filters(tags)) == len(tags)
    assert tag_text(tags) == tag_text(shuffled)


def test_a_star_is_no_value_but_the_key_alone():
    """As in the API of selector terms."""
    assert tag_filters({"b": "*", "a": "x*"}) == (
        DescribeFilter("tag:a", ("x*",)),
        DescribeFilter("tag-key", ("b",)),
    )


def test_a_stored_value_is_kept_until_it_expires():
    """To the second; a value put again starts anew."""
    clock = HandClock()
    cache = TtlCache(clock, timedelta(minutes=1))
    cache.put("a", 1)
    cache.put("b", 2, ttl=timedelta(seconds=10))
    clock.forward(seconds=10)
    assert (cache.get("a"), cache.get("b")) == (1, None)
    cache.put("a", 3)
    clock.forward(seconds=59)
    assert cache.items() == {"a": 3}
    clock.forward(seconds=1)
    assert (cache.get("a"), cache.items()) == (None, {})


def test_a_cache_drops_entries_that_are_too_old():
    """Keys that are not used again are removed as well."""
    clock = HandClock()
    cache = TtlCache(clock, timedelta(seconds=1))
    for number in range(1000):
        cache.put(number, number)
        clock.forward(seconds=0.5)

    assert len(cache._entries) < 100
