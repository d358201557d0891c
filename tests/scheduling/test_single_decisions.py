"""Decisions of single functions of the solver: each condition of them counts by itself."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import numpy as np
import pytest

from karpenter_core.scheduling.placement.counted_claims import _price
from karpenter_core.scheduling.placement.open_nodes import NO_ROW
from karpenter_core.scheduling.whatif.base_state import _subtract


@pytest.mark.parametrize(
    ("row", "fitting", "misses", "price"),
    [
        (NO_ROW, [True, True], False, 1.0),
        (1, [True, True], False, 1.0),
        (2, [True, True], False, inf),
        (1, [False, True], False, 3.0),
        (1, [False, False], False, inf),
        (1, [True, True], True, inf),
    ],
)
def test_a_claim_costs_what_its_cheapest_fitting_type_does(row, fitting, misses, price):
    claim = SimpleNamespace(
        bits=0b011,
        fitting=lambda _used: np.array(fitting),
        missing_min_values=lambda _fitting: misses,
        prices=np.array([1.0, 3.0]),
    )
    state = SimpleNamespace(
        compiled=SimpleNamespace(signatures=SimpleNamespace(claim=lambda _number: claim)),
        nodes=SimpleNamespace(row=np.array([row]), used=np.zeros((1, 1))),
    )
    assert _price(state, 0, 0) == price


def test_a_count_of_nothing_is_no_entry():
    counts = {1: 3, 2: 1}
    _subtract(counts, 1, 2)
    _subtract(counts, 2, 1)
    assert counts == {1: 1}
