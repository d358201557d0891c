"""Play one scenario after the other, each on ground that the one before left clean."""

from __future__ import annotations

import contextlib
import re
import shutil

from tests.e2e.upstream.ground import LOGS, Ground
from tests.e2e.upstream.suite import LIMIT_SECONDS, Result, play


async def run(chosen, output, *, kubernetes, limit_seconds=LIMIT_SECONDS, options=None, tell=print):
    """Play scenarios and return how each went.

    They share a control plane and a controller until one of them fails: what it left behind is no
    ground for another. Each has a folder of its own for its output and its share of the logs.
    """
    results = []
    waiting = list(chosen)
    grounds = 0
    while waiting:
        grounds += 1
        async with Ground(
            output / f"ground-{grounds}", kubernetes=kubernetes, options=options
        ) as ground:
            while waiting:
                scenario = waiting.pop(0)
                folder = output / _file_name(scenario.name)
                folder.mkdir(parents=True, exist_ok=True)
                ends = {name: _size(ground.folder / name) for name in LOGS}
                result = await play(
                    scenario, ground.kubeconfig, folder, limit_seconds=limit_seconds
                )
                if not ground.controller.process.is_running:
                    code = ground.controller.process.exit_code
                    result = Result(scenario, "crashed", result.seconds, f"ended with {code}")
                for name, end in ends.items():
                    _copy_rest(ground.folder / name, end, folder / name)
                results.append(result)
                tell(f"{result.state:9} {result.seconds:6.1f} s  {scenario.name}")
                if not result.is_good:
                    tell(f"          {result.reason[:600]}")
                    break
    return results


def _file_name(name):
    return re.sub(r"[^A-Za-z0-9]+", "-", name)[:150]


def _size(path):
    return path.stat().st_size if path.exists() else 0


def _copy_rest(source, start, target):
    with contextlib.suppress(FileNotFoundError), source.open("rb") as log:
        log.seek(start)
        with target.open("wb") as copy:
            shutil.copyfileobj(log, copy)
