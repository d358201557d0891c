"""Hypothesis profiles and fixtures of all tests of the repository.

Properties (hypothesis) are tried on examples that are drawn anew in every run. Each run ends with its
seed: `pytest --hypothesis-seed=<seed>` draws the same examples again, of single tests too, and
`--hypothesis-profile=shrunk` makes the one that fails smaller. `KARPENTER_PROPERTY_EXAMPLES` sets on
how many each property is tried: a number, or `/4` for a quarter of the usual one.
"""

from __future__ import annotations

import gc
import os
import random
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

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

# Tracebacks as Python writes them: rich ones show every local variable, which takes seconds each.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)
LOGGING = structlog.get_config()

SEED = "hypothesis_seed"

# All providers of the workspace are installed; programs that tests start need but one.
os.environ.setdefault("PROVIDERS", "kwok")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of this run, before hypothesis asks for it; workers are given it."""
    if config.getoption(SEED) is None:
        setattr(config.option, SEED, str(random.SystemRandom().randrange(2**32)))


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Say how to draw the same examples again."""
    terminalreporter.write_line(
        f"properties: the same examples again with --hypothesis-seed={config.getoption(SEED)}"
    )


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Take back how a command that a test ran in this process logs."""
    structlog.configure(**LOGGING)


def pytest_collection_finish() -> None:
    """Leave what thousands of collected tests consist of out of every later garbage collection."""
    gc.collect()
    gc.freeze()
