"""pytest's side of the conformance kit: its options, and a report for a provider's author.

Loaded by every pytest that has this distribution in reach, so it imports next to nothing.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from karpenter_core.testing.subject import Subject

__all__ = ["ENTRY_POINT_GROUP", "subject_factory"]

ENTRY_POINT_GROUP: Final = "karpenter.testing"
"""Where distributions name the subjects of their providers."""

KIT: Final = "karpenter_core.testing.conformance"

pytest.register_assert_rewrite(KIT)


class _Verdict(NamedTuple):
    """What came of one rule."""

    rule: str
    level: str
    text: str
    state: str
    why: str


_VERDICTS: Final = pytest.StashKey[list[_Verdict]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the kit's options."""
    group = parser.getgroup("karpenter", "karpenter's provider contract")
    group.addoption(
        "--karpenter-provider",
        metavar="NAME",
        help=f"the provider that {KIT} is run against: a name in the entry-point group "
        f"{ENTRY_POINT_GROUP}",
    )
    group.addoption(
        "--karpenter-subject",
        metavar="MODULE:NAME",
        help="the same, for a provider that is not installed: where its subject is made",
    )


def subject_factory(config: pytest.Config) -> Callable[[], AbstractContextManager[Subject]]:
    """Return what starts the simulated cloud of the provider that was asked for.

    Raises:
        pytest.UsageError: none was, or it is not installed, or it names no subject.
    """
    place = cast("str | None", config.getoption("--karpenter-subject"))
    if place:
        module, _, name = place.partition(":")
        return _as_factory(getattr(import_module(module), name or "subject"))
    wanted = cast("str | None", config.getoption("--karpenter-provider"))
    points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    known = ", ".join(sorted(points)) or "none"
    if not wanted:
        message = f"say which provider with --karpenter-provider=NAME (installed: {known})"
        raise pytest.UsageError(message)
    if wanted not in points:
        message = (
            f'no distribution names a subject "{wanted}" in the entry-point group '
            f"{ENTRY_POINT_GROUP} (installed: {known})"
        )
        raise pytest.UsageError(message)
    return _as_factory(points[wanted].load())


def _as_factory(
    make: Callable[[], Subject | AbstractContextManager[Subject]],
) -> Callable[[], AbstractContextManager[Subject]]:
    """Accept a context manager's function, or one that returns a subject that needs no end."""

    def factory() -> AbstractContextManager[Subject]:
        made = make()
        return made if isinstance(made, AbstractContextManager) else nullcontext(made)

    return factory


def pytest_configure(config: pytest.Config) -> None:
    """Begin an empty report."""
    config.stash[_VERDICTS] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what came of a rule."""
    report = yield
    _note(item, call, report)
    return report


def _note(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    function = getattr(item, "function", None)
    found = re.match(r"test_pc_(\d{3})_", item.name)
    if found is None or not getattr(function, "__module__", "").startswith(KIT):
        return
    if report.when != "call" and report.passed:
        return
    level, _, text = (getattr(function, "__doc__", None) or ": ").partition(": ")
    state, why = "kept", ""
    if report.skipped:
        why = str(call.excinfo.value) if call.excinfo else ""
        state, _, why = why.removeprefix("Skipped: ").partition(": ")
    elif report.failed:
        state, why = "BROKEN", _first_line(call)
    item.config.stash[_VERDICTS].append(
        _Verdict(f"PC-{found[1]}", level, text.strip().split("\n")[0], state, why)
    )


def _first_line(call: pytest.CallInfo[None]) -> str:
    error = call.excinfo.value if call.excinfo else ""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    prefix = (
        ""
        if isinstance(error, AssertionError | pytest.fail.Exception)
        else (f"{type(error).__name__}: ")
    )
    return prefix + lines[0]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Tell which rules are kept, broken, and not shown."""
    verdicts = sorted(config.stash[_VERDICTS])
    wanted = config.getoption("--karpenter-provider") or config.getoption("--karpenter-subject")
    if not verdicts or not wanted:
        return
    terminalreporter.section(f'the provider contract, kept by "{wanted}"')
    for verdict in verdicts:
        colour = {"kept": "green", "BROKEN": "red"}.get(verdict.state, "yellow")
        line = f"{verdict.rule} {verdict.level:8} {verdict.state:14} {verdict.text}"
        terminalreporter.write_line(line, **{colour: True})
        if verdict.why:
            terminalreporter.write_line(f"{'':16}{verdict.why}")
    states = [verdict.state for verdict in verdicts]
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    terminalreporter.write_line(f"{len(verdicts)} rules: {told}")
    if "BROKEN" in counts:
        terminalreporter.write_line("the rules in full: docs/provider-contract.md")
