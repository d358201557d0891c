"""Every acceptance case of scheduling has a test, and the lists beside the tests are true."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.scheduling.acceptance.catalogues import DEFAULT_TYPES, assorted_types
from tests.scheduling.acceptance.conftest import HERE, differences

ROOT = HERE.parents[2]
CASES = {*range(1, 350), 367}
"""Sections A to X, and the case of daemons in Z."""

LATER = {
    97: "when pods were placed in pools whose nodes register is not kept",
    304: "claims without an instance are capacity here, so no pass waits for them",
}


def listed():
    """Return the cases that are tested elsewhere, and where."""
    table = yaml.safe_load((HERE / "elsewhere.yaml").read_text(encoding="utf-8"))
    places = {}
    for cases, place in table.items():
        first, _, last = cases.partition("-")
        places.update(dict.fromkeys(range(int(first), int(last or first) + 1), place))
    return places


def defined(path):
    """Return the names of the tests in a file."""
    return set(re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")))


def here():
    """Return the names of the tests beside this one."""
    return {name for path in Path(HERE).glob("test_*.py") for name in defined(path)}


def cases_of(name):
    """Return the cases that a test is about: `test_case_108_109_…`."""
    numbers = re.match(r"test_case((?:_\d{3})+)_", name)
    return set() if numbers is None else {int(n) for n in numbers[1].split("_") if n}


def test_every_case_has_a_test():
    tested = {case for name in here() for case in cases_of(name)}
    assert CASES - tested - listed().keys() - LATER.keys() == set()
    assert (tested | listed().keys()) & LATER.keys() == set()


def test_cases_that_are_tested_elsewhere_are():
    for place in set(listed().values()):
        path, _, name = place.partition("::")
        assert name in defined(ROOT / path), place


def test_listed_differences_are_about_tests_that_exist():
    assert set(differences()) <= here()


def test_the_catalogues_are_those_of_the_cases():
    """Six types; 1344 of one offering each, in prices from 0.2 to 20 dollars."""
    prices = [item.offerings[0].price.amount for item in assorted_types()]
    assert len(DEFAULT_TYPES) == 6
    assert len(prices) == 1344
    assert (min(prices), max(prices)) == (0.207374182, 20.143895347)
