"""Tests the reading of faults files."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import BadInputError, LaunchFailedError
from karpenter_provider_kwok.active_faults import ActiveFaults
from karpenter_provider_kwok.faults import CloudOperation, KwokFault, KwokFaultKind, load_faults
from karpenter_provider_kwok.instance_rows import repeated_outcome
from karpenter_provider_kwok.instance_store import InstanceStore
from tests.properties import with_examples

names = st.lists(st.text("ab*?-", max_size=5), max_size=3).map(tuple)
seconds = st.integers(0, 10_000).map(lambda n: timedelta(seconds=n))


@given(
    st.builds(
        KwokFault,
        kind=st.sampled_from(KwokFaultKind),
        operation=st.sampled_from(CloudOperation),
        instance_types=names,
        zones=names,
        capacity_types=names,
        node_claims=names,
        resources=names,
        delay=seconds,
        retry_after=seconds,
        notice=seconds,
        count=st.none() | st.integers(1, 100),
        percent=st.integers(1, 1000),
    )
)
@with_examples(100)
def test_a_fault_reads_as_it_was_written(fault):
    assert load_faults(f"[{fault.to_json()}]", file="f") == (fault,)


@pytest.mark.parametrize(
    ("patterns", "is_struck"),
    [((), True), (("a*",), True), (("b*", "a*"), True), (("b*",), False), (("b*", "c"), False)],
)
def test_a_fault_strikes_what_one_of_its_patterns_matches(patterns, is_struck):
    kind = KwokFaultKind.STOCK_OUT
    for field in ("instance_types", "zones", "capacity_types"):
        fault = KwokFault(kind=kind, **{field: patterns})
        assert fault.matches_offering("ab", "ab", "ab") is is_struck
    assert KwokFault(kind=kind, node_claims=patterns).matches_claim("ab") is is_struck
    assert KwokFault(kind=kind, resources=patterns).matches_resource("ab") is is_struck


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "faults file f.json is not JSON: "),
        ("[" * 100_000, "faults file f.json is not JSON: it is nested too deeply"),
        ("9" * 5_000, "faults file f.json is not JSON: Exceeds the limit"),
        ("{}", "faults file f.json: must be a list of faults"),
        ("[1]", "faults file f.json: entry 0: must be an object, not 1"),
        ('[{"fault": "fire"}]', "entry 0: fault: must be one of stock-out, throttle"),
        ('[{"fault": "throttle", "operation": "dance"}]', "operation: must be one of launch"),
        ('[{"fault": "stock-out", "zone": "a"}]', 'entry 0: unknown field "zone"'),
        ('[{"fault": "stock-out", "zones": "a"}]', 'zones: must be a list of texts, not "a"'),
        ('[{"fault": "stock-out", "count": 0}]', "count: must be a number above zero, not 0"),
        ('[{"fault": "price", "percent": 0.5}]', "percent: must be a number above zero, not 0.5"),
        ('[{"fault": "slow-call", "delay": 3}]', "delay: must be a duration such as 2s, not 3"),
    ],
)
def test_a_mistake_is_named(text, message):
    with pytest.raises(BadInputError) as error:
        load_faults(text, file="f.json")
    assert message in str(error.value)


def test_a_file_with_a_mistake_is_refused_when_it_is_named(tmp_path):
    """Not at the first call of the cloud, which may be much later."""
    file = tmp_path / "faults.json"
    file.write_text("{")
    store = InstanceStore(str(tmp_path / "cloud.db"))
    with pytest.raises(BadInputError, match="is not JSON"):
        ActiveFaults(store).read_file(file)


def test_a_token_is_used_up_at_the_moment_that_its_instance_ends():
    row = {"gone_at": 5.0, "answer": "{}"}
    outcome = repeated_outcome(row, SimpleNamespace(token="uid-1"), 5.0)
    assert isinstance(outcome, LaunchFailedError)
