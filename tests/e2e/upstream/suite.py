"""Builds Karpenter's end-to-end suites and reads their results.

The suites are ginkgo programs inside Karpenter's module. They are built as they are, and each
scenario is played in a process of its own, so that one that fails takes no other along.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peer import GO_ENVIRONMENT, build
from tests.support.processes import ChildProcess, ProcessFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE = Path(__file__).parent / "suite"
KARPENTER = "sigs.k8s.io/karpenter"
SUITES = ("regression", "performance")

LOOPBACK = "-X sigs.k8s.io/controller-runtime/pkg/metrics/server.DefaultBindAddress=127.0.0.1:0"
"""Some scenarios run controllers of their own, whose metrics nobody reads."""

LIMIT_SECONDS = 1200.0
"""Longer than any wait inside a scenario: those give up after 15 minutes, one after 17."""
LAST_WORDS_SECONDS = 20.0


@dataclass(frozen=True)
class Scenario:
    """One scenario of a suite."""

    suite: str
    words: tuple[str, ...]
    """Names of the containers around it, and its own."""
    description: str
    """Name of its suite."""

    @property
    def name(self):
        """The name that is unique within the suite."""
        return " ".join(self.words)

    @property
    def focus(self):
        """The regular expression that finds this one alone."""
        return f"^{re.escape(f'{self.description} {self.name}')}$"


@dataclass(frozen=True)
class Result:
    """Result of a scenario."""

    scenario: Scenario
    state: str
    """`passed`, `skipped`, or in which way it failed."""
    seconds: float
    reason: str = ""

    @property
    def is_good(self):
        """Whether it passed."""
        return self.state == "passed"


@cache
def program(suite):
    """Return the program that plays a suite, built when it is not there."""
    return build(MODULE, suite=f"{KARPENTER}/test/suites/{suite}", link_flags=LOOPBACK)


@cache
def module_folder():
    """Return where the sources of Karpenter's module are."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", KARPENTER]
    environment = os.environ | GO_ENVIRONMENT
    listed = subprocess.run(
        command, cwd=MODULE, env=environment, check=True, text=True, stdout=subprocess.PIPE
    )
    return Path(listed.stdout.strip())


def scenarios(suite):
    """Return the scenarios of a suite, in its order."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [program(suite), "--ginkgo.dry-run", f"--ginkgo.json-report={report}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return [Scenario(suite, _words(spec), description) for description, spec in _specs(report)]


async def play(scenario, kubeconfig, folder, *, limit_seconds=LIMIT_SECONDS):
    """Play one scenario on a cluster; leave its output in the folder."""
    report = folder / "report.json"
    process = ChildProcess(
        scenario.name,
        [
            program(scenario.suite),
            f"--ginkgo.focus={scenario.focus}",
            f"--ginkgo.json-report={report}",
            "--ginkgo.v",
            "--ginkgo.silence-skips",
            "--ginkgo.no-color",
            "--ginkgo.timeout=24h",
        ],
        log=folder / "scenario.log",
        environment={**os.environ, "KUBECONFIG": str(kubeconfig), "OUTPUT_DIR": str(folder)},
    )
    started_at = asyncio.get_running_loop().time()
    await process.start()
    try:
        await process.wait(limit_seconds)
    except ProcessFailedError:
        # Its last words say where it was.
        process.signal(signal.SIGINT)
        await process.stop(LAST_WORDS_SECONDS)
        seconds = asyncio.get_running_loop().time() - started_at
        return Result(scenario, "timed out", seconds, _last_step(process.log_text()))
    except BaseException:
        await process.kill()
        raise
    for _, spec in _specs(report):
        if spec["State"] != "skipped" or "Failure" in spec:
            failure = spec.get("Failure", {})
            reason = f"{failure.get('Message', '')} {_place(failure)}".strip()
            return Result(scenario, spec["State"], spec["RunTime"] / 1e9, reason)
    seconds = asyncio.get_running_loop().time() - started_at
    return Result(scenario, "not played", seconds, process.log_tail())


def _specs(report) -> Iterator[tuple[str, dict[str, Any]]]:
    if not report.exists():
        return
    for suite in json.loads(report.read_text()):
        for spec in suite["SpecReports"]:
            if spec["LeafNodeType"] == "It":
                yield suite["SuiteDescription"], spec


def _words(spec):
    return (*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"])


def _place(failure):
    location = failure.get("FailureNodeLocation") or failure.get("Location") or {}
    file = failure.get("Location", location).get("FileName", "")
    return f"({Path(file).name}:{failure['Location'].get('LineNumber')})" if file else ""


def _last_step(text):
    steps = [line.strip() for line in text.splitlines() if "STEP:" in line]
    return steps[-1] if steps else ""
