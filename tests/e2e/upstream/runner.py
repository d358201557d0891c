"""Plays scenarios one after the other, each on a clean cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil

from tests.e2e.upstream.environment import LOGS, ScenarioEnvironment
from tests.e2e.upstream.suite import LIMIT_SECONDS, Result, play

LAST_LINES = 80
"""Of the controller's log, in the reason of a failure."""


class ScenarioPlayer:
    """Plays scenarios; a context manager.

    They share a control plane and a controller until one of them fails: what it left behind is no
    ground for another. Each has a folder of its own for its output and its share of the logs.
    """

    def __init__(self, output, *, kubernetes, limit_seconds=LIMIT_SECONDS, options=None):
        self._output = output
        self._kubernetes = kubernetes
        self._limit = limit_seconds
        self._options = options
        self._ground = None
        self._grounds = 0

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        ground, self._ground = self._ground, None
        if ground is not None:
            await ground.__aexit__()

    async def play(self, scenario):
        """Play one scenario and return how it went."""
        ground = await self._clean_ground()
        folder = self._output / _file_name(scenario.name)
        folder.mkdir(parents=True, exist_ok=True)
        ends = {name: _size(ground.folder / name) for name in LOGS}
        result = await play(scenario, ground.kubeconfig, folder, limit_seconds=self._limit)
        if not ground.controller.process.is_running:
            reason = f"ended with {ground.controller.process.exit_code}"
            result = Result(scenario, "crashed", result.seconds, reason)
        if result.is_good and (left := await ground.left_behind()):
            result = Result(scenario, "leaked", result.seconds, f"left behind: {left}")
        for name, end in ends.items():
            _copy_rest(ground.folder / name, end, folder / name)
        if not result.is_good:
            await self.__aexit__()
            # Folders of tests go with the next runs, and what fails seldom is not seen again soon.
            lines = (folder / LOGS[0]).read_text(errors="replace").splitlines()[-LAST_LINES:]
            reason = "\n".join((result.reason, f"last lines of {LOGS[0]}:", *lines))
            result = dataclasses.replace(result, reason=reason)
        return result

    async def _clean_ground(self):
        if self._ground is None:
            self._grounds += 1
            folder = self._output / f"ground-{self._grounds}"
            ground = ScenarioEnvironment(folder, kubernetes=self._kubernetes, options=self._options)
            self._ground = await ground.__aenter__()
        return self._ground


def _file_name(name):
    return re.sub(r"[^A-Za-z0-9]+", "-", name)[:150]


def _size(path):
    return path.stat().st_size if path.exists() else 0


def _copy_rest(source, start, target):
    with contextlib.suppress(FileNotFoundError), source.open("rb") as log:
        log.seek(start)
        with target.open("wb") as copy:
            shutil.copyfileobj(log, copy)
