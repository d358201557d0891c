"""Shared tags assign instances to their claims."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit import claim_tags
from karpenter_core.provider.kit.claim_tags import ClaimTags, TooManyClaimsError
from karpenter_core.provider.kit.recent_launches import ClaimRef
from tests.properties import with_examples

OWN = "cloud/own"
READ = []


def write(claim, pool):
    return f"{pool}/{claim.name}/{claim.uid}"


def read(entry, pool):
    READ.append(entry)
    parts = entry.split("/")
    return ClaimRef(name=parts[1], uid=parts[2]) if len(parts) == 3 and parts[0] == pool else None


TAGS = ClaimTags(
    key="cloud/claims",
    own_key=OWN,
    pool_key="cloud/pool",
    call_key="",
    max_characters=32,
    max_tags=12,
    max_claim_tags=4,
    later_tags=2,
    write=write,
    read=read,
)
A, B, C = (ClaimRef(name=name, uid=f"uid-{name}") for name in "abc")
CALL = {"cloud/pool": "p", **TAGS.tags_for([C, A, B], other_tags=1, node_pool="p")}


def refs(count):
    return [ClaimRef(name=f"n{n:03}", uid=f"u{n:03}") for n in range(count)]


def test_claims_by_uid_fill_one_tag_after_the_other():
    assert CALL == {
        "cloud/pool": "p",
        "cloud/claims": "p/a/uid-a p/b/uid-b p/c/uid-c",
    }
    written = TAGS.tags_for(refs(5), other_tags=1, node_pool="p")
    assert written == {
        "cloud/claims": "p/n000/u000 p/n001/u001",
        "cloud/claims-1": "p/n002/u002 p/n003/u003",
        "cloud/claims-2": "p/n004/u004",
    }


def test_a_call_for_one_claim_names_it_outright():
    assert TAGS.tags_for([A], other_tags=1)[OWN] == "a"
    assert OWN not in CALL


def test_a_name_beyond_a_value_is_not_written_and_its_uid_is():
    long = ClaimRef(name="n" * 40, uid="u")
    assert TAGS.tags_for([long], other_tags=1, node_pool="p") == {"cloud/claims": "p//u"}


def test_more_claims_than_tags_hold_are_refused():
    with pytest.raises(TooManyClaimsError, match="9 claims"):
        TAGS.tags_for(refs(9), other_tags=1, node_pool="p")


@pytest.mark.parametrize(
    ("other_tags", "most", "sizes"),
    [(1, None, [8, 4]), (8, None, [4, 4, 4]), (20, None, [2] * 6), (1, 5, [5, 5, 2])],
)
def test_calls_are_as_large_as_tags_and_the_cloud_let_them_be(other_tags, most, sizes):
    cut = TAGS.batches(refs(12), other_tags=other_tags, node_pool="p", max_claims=most)
    assert [len(batch) for batch in cut] == sizes
    assert [claim for batch in cut for claim in batch] == refs(12)


def test_a_claim_with_a_long_name_has_a_call_of_its_own():
    long = ClaimRef(name="n" * 29, uid="u001")
    cut = TAGS.batches([*refs(1), long, *refs(4)[2:]], other_tags=1, node_pool="p")
    assert [len(batch) for batch in cut] == [1, 3]
    assert cut[0] == (long,)


@given(st.sets(st.integers(0, 500), max_size=40), st.integers(0, 12), st.integers(1, 20))
@with_examples(100)
def test_every_claim_is_in_one_call_by_its_tags(numbers, other_tags, most):
    claims = [ClaimRef(name=f"n{n}", uid=f"u{n}") for n in sorted(numbers)]
    tagged_claims = []
    for batch in TAGS.batches(claims, other_tags=other_tags, node_pool="p", max_claims=most):
        assert len(batch) <= most
        tags = TAGS.tags_for(batch, other_tags=other_tags, node_pool="p")
        tagged_claims += TAGS.claims_of({"cloud/pool": "p", **tags})
    assert sorted(tagged_claims, key=lambda claim: claim.name) == sorted(
        claims, key=lambda c: c.name
    )


def test_unreadable_tags_have_no_claim():
    assert TAGS.claims_of({"cloud/claims": "nonsense  p/a", "cloud/pool": "p"}) == ()
    assert TAGS.claims_of({}) == ()


def test_the_tag_of_another_controller_has_a_name_only():
    assert TAGS.claims_of({OWN: "old"}) == (ClaimRef(name="old", uid=""),)
    assert TAGS.assign_owners({"i1": {OWN: "old"}}) == {"i1": ClaimRef(name="old", uid="")}


def test_the_tags_of_a_call_are_read_once():
    tags = {"cloud/pool": "q", **TAGS.tags_for([A, B], other_tags=1, node_pool="q")}
    claim_tags._read.cache_clear()
    READ.clear()
    for _ in range(3):
        TAGS.assign_owners(dict.fromkeys(("i1", "i2"), tags))
    assert len(READ) == 2


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("cloud/claims", True),
        ("cloud/claims-3", True),
        ("cloud/claims-x", False),
        ("cloud/claims-", False),
        ("cloud/claimsmen", False),
        (OWN, False),
    ],
)
def test_claim_tag_keys_are_recognised(key, ours):
    assert TAGS.is_key(key) is ours


def call(*names, **own):
    """Tags by instance id of the call for all three claims."""
    return {name: CALL | ({OWN: own[name]} if name in own else {}) for name in names}


def test_instances_by_id_are_assigned_to_claims_by_uid():
    assert TAGS.assign_owners(call("i2", "i1")) == {"i1": A, "i2": B}


def test_an_instance_beyond_the_last_claim_is_surplus():
    assert sorted(TAGS.assign_owners(call("i1", "i2", "i3", "i4"))) == ["i1", "i2", "i3"]


def test_tags_of_an_instance_outrank_the_order():
    assert TAGS.assign_owners(call("i1", "i2", i2="a")) == {"i1": B, "i2": A}


def test_recorded_owners_outrank_tags_of_an_instance():
    assert TAGS.assign_owners(call("i1", i1="a"), {"i1": C}) == {"i1": C}


def test_a_claim_with_an_unlisted_instance_is_assigned_no_other():
    assert TAGS.assign_owners(call("i1", "i2", i2="a"), {"elsewhere": A}) == {"i1": B}


def tagged(*claims, **more):
    return {"cloud/pool": "p", **TAGS.tags_for(claims, other_tags=1, node_pool="p"), **more}


def test_calls_are_distinguished_by_their_claims():
    """The second call was for those whom the first brought nothing."""
    first, second = tagged(A, B, C), tagged(B, C)
    shown = {"i9": first, "i1": second, "i2": second, "alone": {}}
    assert TAGS.owners_of(shown, {}) == {"i9": A, "i1": B, "i2": C}


def test_calls_are_distinguished_by_the_clouds_tag():
    """Two calls for the same claims; an instance without that tag is a call of its own."""
    tags = replace(TAGS, call_key="cloud/call")
    one, two = (tagged(A, B, **{"cloud/call": name}) for name in ("one", "two"))
    shown = {"i1": one, "i2": two, "i3": two, "i4": tagged(A, B), "i5": tagged(A, B)}
    assert tags.owners_of(shown, {}) == {"i1": A, "i2": A, "i3": B, "i4": A, "i5": A}


def test_recorded_owners_count_in_every_call_and_are_read_once():
    """A cluster has nearly as many calls as instances, and as many claims that name theirs."""

    class Known(dict):
        reads = 0

        def values(self):
            self.reads += 1
            return super().values()

    known = Known(i2=A, elsewhere=C)
    shown = {"i1": tagged(A, B), "i2": tagged(A, B), "i3": tagged(C, B)}
    assert TAGS.owners_of(shown, known) == {"i1": B, "i2": A, "i3": B}
    assert known.reads == 1
