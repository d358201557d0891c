"""The contract's page agrees with the code."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.provider import contract, hookspecs
from karpenter_core.provider.contract import CONTRACT_VERSION, POLLING_BOUNDS, PollingPeriods
from karpenter_core.provider.host.manager import MANDATORY_HOOKS
from karpenter_core.provider.host.metrics import PluginCallMetrics
from karpenter_core.testing import conformance
from karpenter_core.testing.conformance.test_loading import PUBLIC_MODULES

DOCS = Path(__file__).parents[2] / "docs"
TYPES_PAGE = DOCS / "reference" / "provider-types.md"
PAGE = (Path(__file__).parents[2] / "docs" / "provider-contract.md").read_text()
HOOKS = [name for name in vars(hookspecs) if name.startswith("karpenter_")]


@pytest.mark.parametrize("hook", HOOKS)
def test_page_has_each_hook_with_its_exact_signature(hook):
    """A section heading shows name, arguments and result as the specification has them."""
    function = getattr(hookspecs, hook)
    arguments = ", ".join(inspect.signature(function).parameters)
    assert f"### `{hook}({arguments}) -> {function.__annotations__['return']}`\n" in PAGE


def test_page_has_no_hook_that_does_not_exist():
    assert re.findall(r"^### `(\w+)\(", PAGE, re.MULTILINE) == HOOKS


def test_page_says_of_each_hook_when_it_is_called():
    table = PAGE.split("| hook | called | thread | limit |", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == HOOKS


def test_page_says_which_hooks_are_mandatory():
    sections = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
    mandatory = {re.match(r"`(\w+)", s)[1] for s in sections if "Mandatory." in s}
    assert mandatory == set(MANDATORY_HOOKS)


def test_rules_with_a_tick_are_the_rules_the_kit_tests():
    """Each once, and at the same level."""
    ticked = re.findall(r"^\| PC-(\d{3}) \| ([A-Z ]+) \| ✓ \|", PAGE, re.MULTILINE)
    names = [name for name in conformance.__all__ if name.startswith("test_pc_")]
    tested = [
        (name.split("_")[2], getattr(conformance, name).__doc__.partition(":")[0]) for name in names
    ]
    assert sorted(tested) == ticked


def test_modules_the_kit_allows_are_those_the_page_allows():
    section = PAGE.split("## What a provider imports", 1)[1].split("## ", 1)[0]
    named = set(re.findall(r"`(karpenter_core\.[\w.]+)`", section)) - {"karpenter_core.testing"}
    assert named == set(PUBLIC_MODULES)


def test_rules_are_numbered_once_and_in_order():
    rules = [int(n) for n in re.findall(r"^\| PC-(\d{3}) \|", PAGE, re.MULTILINE)]
    assert rules == sorted(set(rules))


def test_rules_cited_in_hookspecs_exist():
    cited = set(re.findall(r"PC-\d{3}", inspect.getsource(hookspecs)))
    assert cited
    assert all(f"| {rule} |" in PAGE for rule in cited)


def test_page_has_each_metric_with_its_labels():
    registry = CollectorRegistry()
    metrics = PluginCallMetrics(registry)
    metrics.observe("Create", "kwok", 0.1, ValueError("boom"))
    metrics.set_overdue("kwok", 1)
    for family in registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = [k for k in family.samples[0].labels if k != "le"]
        row = f"| `{name}` | {family.type} | {', '.join(f'`{label}`' for label in labels)} |"
        assert row in PAGE


def test_page_is_about_this_version():
    assert PAGE.startswith(f"# The provider contract, version {CONTRACT_VERSION}\n")


def test_page_has_each_polling_period_with_its_bounds():
    table = PAGE.split("| field | hook | default | from | to |", 1)[1].split("\n\n", 1)[0]
    rows = [[cell.strip(" `") for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    written = {name: [parse(text) for text in texts] for name, _, *texts in rows}
    assert written == {
        name: [getattr(PollingPeriods(), name), *bounds] for name, bounds in POLLING_BOUNDS.items()
    }


def parse(text: str) -> timedelta:
    number, unit = text.split()
    return (
        int(number)
        * {"s": timedelta(seconds=1), "min": timedelta(minutes=1), "h": timedelta(hours=1)}[unit]
    )


def test_page_of_types_is_that_of_the_code(monkeypatch):
    """`python docs/check.py --write` writes it anew."""
    monkeypatch.syspath_prepend(str(DOCS))
    import provider_types

    assert provider_types.PAGE.read_text() == provider_types.page()


@pytest.mark.parametrize("name", contract.__all__)
def test_page_of_types_has_each_type_of_the_contract(name):
    value = getattr(contract, name)
    if inspect.isclass(value) and value.__module__.startswith(f"{contract.__name__}."):
        heading = rf"^### `{name}(\([\w\[\], ]+\))?`$"
        assert re.search(heading, TYPES_PAGE.read_text(), re.MULTILINE)
