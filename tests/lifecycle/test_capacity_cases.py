"""Every acceptance case of static NodePools in lifecycle and disruption has a test."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
PLACES = yaml.safe_load((HERE / "capacity_cases.yaml").read_text(encoding="utf-8"))
CASES = {156, 158, 172, 173, *range(186, 199)}


def test_every_case_has_a_test():
    assert {int(case) for case in PLACES} == CASES


@pytest.mark.parametrize("case", PLACES)
def test_the_test_of_a_case_exists(case):
    path, _, name = PLACES[case].partition("::")
    assert f"def {name}(" in (HERE.parents[1] / path).read_text(encoding="utf-8")
