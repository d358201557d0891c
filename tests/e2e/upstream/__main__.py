"""Plays Karpenter's own end-to-end scenarios against `karpenter run`.

    python -m tests.e2e.upstream --focus "Termination.*order"
    python -m tests.e2e.upstream --expected

Needs Go for Karpenter's module (the program is built once) and the binaries of the control plane
(`tests/e2e/controlplane/build.py --kwok 0.6`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import sys
import tempfile
from pathlib import Path

from tests.e2e.upstream.expected import EXPECTED
from tests.e2e.upstream.runner import ScenarioPlayer
from tests.e2e.upstream.suite import LIMIT_SECONDS, SUITES, scenarios


def main():
    """Play what was chosen; return 1 when something failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--suite", choices=SUITES, default="regression")
    parser.add_argument("--focus", default="", help="regular expression on names of scenarios")
    parser.add_argument("--expected", action="store_true", help="only those that are to pass")
    parser.add_argument("--list", action="store_true", help="print the names, play nothing")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds for each")
    parser.add_argument("--kubernetes", default="1.36", help="minor of the control plane")
    parser.add_argument("--output", type=Path, help="folder for logs")
    parser.add_argument("--option", action="append", default=[], help="FLAG=VALUE of karpenter run")
    arguments = parser.parse_args()
    chosen = [
        scenario
        for scenario in scenarios(arguments.suite)
        if re.search(arguments.focus, scenario.name)
        and (not arguments.expected or scenario.name in EXPECTED[arguments.suite])
    ]
    if arguments.list:
        print("\n".join(scenario.name for scenario in chosen))
        return 0
    output = arguments.output or Path(tempfile.mkdtemp(prefix="upstream-"))
    player = ScenarioPlayer(
        output,
        kubernetes=arguments.kubernetes,
        limit_seconds=arguments.limit,
        options=dict(option.split("=", 1) for option in arguments.option),
    )
    results = asyncio.run(_until_terminated(_play_all(player, chosen)))
    good = sum(result.is_good for result in results)
    print(f"{good} passed, {len(results) - good} failed; logs in {output}")
    (output / "results.json").write_text(
        json.dumps([[r.scenario.name, r.state, round(r.seconds, 1), r.reason] for r in results])
    )
    return 0 if good == len(results) else 1


async def _play_all(player, chosen):
    results = []
    async with player:
        for scenario in chosen:
            result = await player.play(scenario)
            print(f"{result.state:9} {result.seconds:6.1f} s  {scenario.name}", flush=True)
            if not result.is_good:
                print(f"          {result.reason[:600]}", flush=True)
            results.append(result)
    return results


async def _until_terminated(work):
    """Let a polite end (SIGTERM) end the children too, as Ctrl-C does."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


if __name__ == "__main__":
    sys.exit(main())
