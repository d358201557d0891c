"""A few random histories; `tests.controllers.histories` plays any number."""

from __future__ import annotations

import pytest

from tests.controllers.histories import breaches_of

HISTORIES = 20


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_nothing_is_broken_at_any_time_of_a_random_history(tmp_path, seed):
    assert breaches_of(seed, tmp_path) == []
