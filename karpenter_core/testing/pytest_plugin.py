"""pytest plug-in of the conformance kit: options, and the author's report.

Loaded by every pytest that has this distribution in reach, so it imports next to nothing.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, NamedTuple, cast, final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from karpenter_core.testing.subject import ConformanceSubject

__all__ = ["ENTRY_POINT_GROUP", "subject_factory"]

ENTRY_POINT_GROUP: Final = "karpenter.testing"
"""Entry points by which distributions name the subjects of their providers."""

KIT: Final = "karpenter_core.testing.conformance"

pytest.register_assert_rewrite(KIT)


class _RuleResult(NamedTuple):
    """The result of one rule."""

    rule: str
    level: str
    text: str
    state: str
    why: str


_PROPERTY: Final = "karpenter-rule"
"""Under which a test's report carries its verdict, across processes where pytest-xdist has several."""


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


def subject_factory(
    config: pytest.Config,
) -> Callable[[], AbstractContextManager[ConformanceSubject]]:
    """Return the function that starts the simulated cloud of the selected provider.

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
    make: Callable[[], ConformanceSubject | AbstractContextManager[ConformanceSubject]],
) -> Callable[[], AbstractContextManager[ConformanceSubject]]:
    """Accept a context manager's function, or one that returns a subject that needs no end."""

    def factory() -> AbstractContextManager[ConformanceSubject]:
        made = make()
        return made if isinstance(made, AbstractContextManager) else nullcontext(made)

    return factory


def pytest_configure(config: pytest.Config) -> None:
    """Begin an empty report, where one is asked for."""
    wanted = config.getoption("--karpenter-subject") or config.getoption("--karpenter-provider")
    if wanted:
        config.pluginmanager.register(_ContractReport(str(wanted)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """End with one message, instead of one for each rule, if there is no provider to test."""
    is_worker = hasattr(session.config, "workerinput")  # of pytest-xdist, which would not show it
    if is_worker or session.config.getoption("collectonly"):
        return
    if not any(_is_of_kit(item) for item in session.items):
        return
    try:
        subject_factory(session.config)
    except pytest.UsageError:
        raise
    except Exception:  # it is reported as the rule that it breaks
        return


def _is_of_kit(item: pytest.Item) -> bool:
    """Whether a test is the kit's own, not one that a distribution has imported from it."""
    return getattr(getattr(item, "module", None), "__name__", "").startswith(f"{KIT}.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record the result of a rule."""
    report = yield
    verdict = _rule_result(item, call, report)
    if verdict is not None:
        report.user_properties.append((_PROPERTY, tuple(verdict)))
    return report


def _rule_result(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> _RuleResult | None:
    function = getattr(item, "function", None)
    found = re.match(r"test_pc_(\d{3})_", item.name)
    if found is None or not getattr(function, "__module__", "").startswith(KIT):
        return None
    if report.when != "call" and report.passed:
        return None
    level, _, text = (getattr(function, "__doc__", None) or ": ").partition(": ")
    state, why = "kept", ""
    if report.skipped:
        why = str(call.excinfo.value) if call.excinfo else ""
        state, _, why = why.removeprefix("Skipped: ").partition(": ")
    elif report.failed:
        state, why = "BROKEN", _first_line(call)
    return _RuleResult(f"PC-{found[1]}", level, text.strip().split("\n")[0], state, why)


def _first_line(call: pytest.CallInfo[None]) -> str:
    error = call.excinfo.value if call.excinfo else ""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, AssertionError | pytest.fail.Exception):
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}"


@final
class _ContractReport:
    """The rules that are kept, broken, and not shown."""

    def __init__(self, wanted: str) -> None:
        self._wanted: Final = wanted
        self._verdicts: Final[list[_RuleResult]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the results of tests, those of other processes included."""
        for name, value in report.user_properties:
            if name == _PROPERTY:
                self._verdicts.append(_RuleResult(*cast("tuple[str, str, str, str, str]", value)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the report."""
        if not self._verdicts:
            return
        terminalreporter.section(f'the provider contract, tested with "{self._wanted}"')
        first_with: dict[str, str] = {}
        for verdict in sorted(self._verdicts):
            colour = {"kept": "green", "BROKEN": "red"}.get(verdict.state, "yellow")
            line = f"{verdict.rule} {verdict.level:8} {verdict.state:14} {verdict.text}"
            terminalreporter.write_line(line, **{colour: True})
            if verdict.why:
                first = first_with.setdefault(verdict.why, verdict.rule)
                why = verdict.why if first == verdict.rule else f"the same reason as {first}"
                terminalreporter.write_line(f"{'':16}{why}")
        states = [verdict.state for verdict in sorted(self._verdicts)]
        counts = {state: states.count(state) for state in dict.fromkeys(states)}
        totals = ", ".join(f"{count} {state}" for state, count in counts.items())
        terminalreporter.write_line(f"{len(states)} rules: {totals}")
        if "BROKEN" in counts:
            terminalreporter.write_line("the rules in full: docs/provider-contract.md")
