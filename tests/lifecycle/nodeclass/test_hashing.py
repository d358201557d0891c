"""Static drift of a NodeClass is detected by hashes."""

from __future__ import annotations

import pytest

from karpenter_core.api.base import ObjectMeta
from karpenter_core.lifecycle.nodeclaim.drift import LocalDrift, local_drift, with_drift
from karpenter_core.lifecycle.nodeclass.hashing import (
    hash_annotations,
    is_hash_current,
    node_class_drift,
    with_migrated_hash,
)
from karpenter_core.testing.builders import EPOCH, node_pool
from karpenter_core.testing.state_builders import node_claim
from karpenter_provider_kwok.api import KWOKNodeClass

HASH = "karpenter.kwok.sh/kwoknodeclass-hash"
VERSION = "karpenter.kwok.sh/kwoknodeclass-hash-version"
OLD = {HASH: "1", VERSION: "v1"}
NEW = {HASH: "2", VERSION: "v1"}
STAMP = {HASH: "9", VERSION: "v2"}


def node_class(annotations=None) -> KWOKNodeClass:
    return KWOKNodeClass(metadata=ObjectMeta(name="default", annotations=annotations or {}))


def claim(annotations):
    return node_claim(stage="Launched", annotations=annotations)


def test_the_annotations_have_the_names_that_providers_of_karpenter_use():
    assert hash_annotations(node_class(), value="1", version="v1") == OLD


@pytest.mark.parametrize(
    ("ours", "theirs", "drifts"),
    [
        (OLD, NEW, True),
        (NEW, NEW, False),
        ({}, NEW, False),
        (OLD, {}, False),
        ({HASH: "1"}, NEW, False),
        (OLD, {HASH: "2"}, False),
        (OLD, {HASH: "2", VERSION: "v2"}, False),
    ],
)
def test_hashes_count_when_both_are_there_and_of_one_version(ours, theirs, drifts):
    result = node_class_drift(claim(ours), node_class(theirs))

    assert result == ("NodeClassDrift" if drifts else "")


def test_nodeclass_drift_comes_after_pool_and_before_provider():
    drifting, changed = claim(OLD), node_class(NEW)

    own = local_drift(drifting, node_pool(), None, now=EPOCH, node_class=changed)
    excluded = local_drift(
        drifting,
        node_pool(requirements=[("kubernetes.io/os", "In", "windows")]),
        None,
        now=EPOCH,
        node_class=changed,
    )

    assert own == LocalDrift(reason="NodeClassDrift", is_decided=True)
    assert excluded.reason == "RequirementsDrifted"


class TestMigration:
    """A new hash function causes no drift, and hides none."""

    def migrated(self, before):
        return with_migrated_hash(before, node_class(OLD), STAMP)

    def test_claims_of_another_version_get_hash_and_version(self):
        assert self.migrated(claim(OLD)).metadata.annotations == STAMP
        assert self.migrated(claim({})).metadata.annotations == STAMP

    def test_claims_of_the_same_version_keep_their_hash(self):
        stamped = claim({HASH: "5", VERSION: "v2"})

        assert self.migrated(stamped) is stamped

    def test_a_drifted_claim_stays_drifted(self):
        drifted = with_drift(claim(OLD), LocalDrift(is_decided=False), "ImageDrift", now=EPOCH)

        assert self.migrated(drifted).metadata.annotations == {HASH: "1", VERSION: "v2"}

    def test_migration_is_due_while_the_nodeclass_has_another_version(self):
        assert not is_hash_current(node_class(OLD), STAMP)
        assert is_hash_current(node_class(STAMP), STAMP)
