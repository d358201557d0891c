"""Hypothesis profiles and fixtures of all tests of the repository.

Properties (hypothesis) are tried on examples that are drawn anew in every run. Each run ends with its
seed: `pytest --hypothesis-seed=<seed>` draws the same examples again, of single tests too, and
`--hypothesis-profile=shrunk` makes the one that fails smaller. `KARPENTER_PROPERTY_EXAMPLES` sets on
how many each property is tried: a number, or `/10` for a tenth of the usual one.
"""

from __future__ import annotations

import gc
import os
import random
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

from tests.support.log_lines import LogLines

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from _pytest.terminal import TerminalReporter

pytest_plugins = (
    "tests.support.drawn_records",
    "tests.support.forked_workers",
    "tests.support.shared_clusters",
)

settings.register_profile(
    "drawn",
    database=None,  # a seed means the same examples on every machine
    deadline=None,
    print_blob=True,
    suppress_health_check=(HealthCheck.too_slow,),
    # A failure is told at once. Most examples are made from a seed, which no shrinking makes small,
    # and the minutes that it takes would end in pytest's time limit with nothing told at all.
    phases=(Phase.explicit, Phase.generate, Phase.target),
)
settings.register_profile("shrunk", settings.get_profile("drawn"), phases=tuple(Phase))
settings.load_profile("drawn")

LINES = LogLines()
"""Lines that the running test has logged."""
LOGGING = structlog.get_config()

COLLECTED_AT = (50_000, 20, 50)
"""The thresholds of the garbage collector: new objects, and collections of each younger generation."""

UNFREEZE = gc.unfreeze
UNFROZEN: set[str] = set()
"""Whether the running test has given frozen objects back to the collector: empty if not."""

SEED = "hypothesis_seed"
NAMED_IN_FILES = ("cluster_runs", "properties", "developer_tools")
"""Markers that each file whose tests have them names: `-m MARKER` and `-m 'ONE or OTHER'` import no other file."""

# All providers of the workspace are installed; programs that tests start need but one.
os.environ.setdefault("PROVIDERS", "kwok")

# NumPy's OpenBLAS adds in another order on other processors, which decides ties between plans of equal
# cost: recorded plans need the same one everywhere. It is chosen when NumPy is imported.
os.environ["OPENBLAS_CORETYPE"] = "Haswell"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of this run, before hypothesis asks for it; workers are given it.

    And keep what tests log, unless `-s` asks to see it at once. Garbage is collected less often than by
    default: most of what is imported and collected stays, and most of what a test makes lives until
    it ends.
    """
    gc.set_threshold(*COLLECTED_AT)
    gc.unfreeze = _unfreeze
    if config.getoption(SEED) is None:
        setattr(config.option, SEED, str(random.SystemRandom().randrange(2**32)))
    # Tracebacks as Python writes them: rich ones show every local variable, which takes seconds each.
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    *processors, stamp, _ = structlog.get_config()["processors"]
    last = [stamp, console] if config.getoption("capture") == "no" else [LINES]
    LOGGING["processors"] = [*processors, *last]
    structlog.configure(**LOGGING)


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Say how to draw the same examples again."""
    terminalreporter.write_line(
        f"properties: the same examples again with --hypothesis-seed={config.getoption(SEED)}"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a test that has the marker: importing them all takes 10 s of CPU."""
    markers = config.getoption("markexpr").split(" or ")
    if not set(markers) <= set(NAMED_IN_FILES) or not collection_path.name.startswith("test_"):
        return None
    if not collection_path.is_file():
        return None
    text = collection_path.read_text()
    return None if any(marker in text for marker in markers) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a file that has tests with such a marker but does not name it: they would be left out."""
    for marker in NAMED_IN_FILES:
        for path in {item.path for item in items if item.get_closest_marker(marker)}:
            if marker not in path.read_text():
                raise pytest.UsageError(f'{path}: its tests are marked "{marker}": name it there')


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Forget what the test before has logged."""
    LINES.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what a test has logged, if it fails."""
    report = yield
    LINES.add_to(report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Take back how a command that a test ran in this process logs, and what it gave to the collector.

    A controller that ends gives back what it froze, and with it all collected tests: each later
    collection of this process would walk over them.
    """
    structlog.configure(**LOGGING)
    if UNFROZEN:
        UNFROZEN.clear()
        gc.freeze()


def _unfreeze() -> None:
    """Give everything back to the collector, and remember it."""
    UNFROZEN.add("now")
    UNFREEZE()


def pytest_collection_finish() -> None:
    """Leave what thousands of collected tests consist of out of every later garbage collection."""
    gc.collect()
    gc.freeze()
