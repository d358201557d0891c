"""Clusters with many features at once come to rest; `tests.controllers.combinations` plays any number."""

from __future__ import annotations

import pytest

from tests.controllers.combinations import breaches_of

SEEDS = {
    1: "share of spot, commitments, buffers and a cut-off",
    309: "pods that moved into the room of a buffer over and over",
}


@pytest.mark.cluster_runs
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_with_many_features_comes_to_rest(tmp_path, seed):
    features, breaches = breaches_of(seed, tmp_path)
    assert features
    assert breaches == []
