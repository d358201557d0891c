"""Writes the pictures of the documentation from a real run: `python -m tests.dashboard.pictures`.

The controller runs on the embedded cluster; the pictures show it by the dashboard and `karpenter top`,
and the report of `karpenter plan --rebalance`. Others show reports of `karpenter simulate`.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from karpenter_core.cli.cluster_source import ClusterSource
from karpenter_core.cli.demo.demo_manifests import NAME
from karpenter_core.cli.top.app import TopApp
from karpenter_core.cli.top.feed import ViewFeed
from karpenter_core.cli.top.order import Sorting
from karpenter_core.cli.top.view import ViewOptions
from karpenter_core.kube.wire.codecs import NODE_POOLS
from tests.support.browser import Browser
from tests.support.dashboard_runs import running_dashboard

if TYPE_CHECKING:
    from tests.support.dashboard_runs import DashboardRun

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ROOT / "docs/images"
SETTLE_SECONDS: Final = 30.0
_WAITS: Final = {
    "spec": {
        "disruption": {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "10m",
            "budgets": [{"nodes": "2"}],
        }
    }
}
"""Nodes stay as they are for as long as the pictures are taken."""
_PROGRAM: Final = "from karpenter_core.cli.main import main; main()"
_SIMULATE: Final = ("simulate", "--nodepools", "examples/simulate/nodepools.yaml", "--output=html")
_SIMULATIONS: Final = {
    "simulate-day.png": (
        ("--workload=examples/simulate/day.yaml", "--compare=examples/simulate/on-demand.yaml"),
        1235,
    ),
    "simulate-fifty-replicas.png": (
        ("--workload=examples/simulate/fifty-replicas.yaml", "--duration=2h"),
        1165,
    ),
    "simulate-redis.png": (("--workload=examples/simulate/redis.yaml",), 820),
}
"""Pictures of simulations: the options, and the height of what is shown."""
_FONT: Final = re.compile(r"@font-face \{.*?\}", re.DOTALL)


async def main() -> None:
    """Write all pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with running_dashboard(folder) as run:
            await run.api.patch(NODE_POOLS, NAME, _WAITS)
            await _play(run)
            report = folder / "report.html"
            report.write_text(await _rebalance_report(run.kubeconfig))
            await asyncio.to_thread(_photograph, run.url, report)
            (IMAGES / "top.svg").write_text(await _top(run.kubeconfig))
        await simulations(folder)


async def simulations(folder: Path) -> None:
    """Write the pictures of simulations."""
    for picture, (options, height) in _SIMULATIONS.items():
        page = folder / "page.html"
        page.write_text(await _output(*_SIMULATE, *options))
        await asyncio.to_thread(_photograph_page, page, IMAGES / picture, height)


def _photograph_page(page: Path, picture: Path, height: int) -> None:
    with Browser(width=900, height=height) as browser:
        browser.prefer("light")
        browser.driver.get(page.as_uri())
        browser.picture(picture)


async def _play(run: DashboardRun) -> None:
    """Scale up in waves and down again, so that nodes are neither full nor empty."""
    for replicas in (12, 40, 150, 90):
        await run.cluster.scale(replicas)
        await asyncio.sleep(10)
    await run.add_pod("too-large", cpu="5000")
    await asyncio.sleep(SETTLE_SECONDS)


async def _rebalance_report(kubeconfig: Path) -> str:
    return await _output("plan", f"--kubeconfig={kubeconfig}", "--rebalance", "--output=html")


async def _output(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROGRAM, *arguments, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    text, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"karpenter {' '.join(arguments)}: exit code {process.returncode}")
    return text.decode()


def _photograph(url: str, report: Path) -> None:
    with Browser(width=1280, height=1060) as browser:
        browser.prefer("light")
        browser.driver.get(url)
        browser.wait(lambda: "has enough resources" in browser.text("#pending-table"), 60)
        browser.wait(lambda: "Ready" in browser.text("#nodes-table"), 60)
        browser.picture(IMAGES / "dashboard.png")
        browser.resize(1100, 780)
        browser.driver.get(report.as_uri())
        browser.picture(IMAGES / "rebalance.png")


async def _top(kubeconfig: Path) -> str:
    """Return a picture of the live view, without the fonts that it would load from elsewhere."""
    source = ClusterSource(kubeconfig=kubeconfig)
    options = ViewOptions(resources=("cpu", "memory"), node_selector={})
    app = TopApp(
        lambda app: ViewFeed(
            source,
            options,
            refresh_seconds=5.0,
            publish=app.publish,
            report=app.report,
            fail=app.fail,
        ),
        sorting=Sorting(),
    )
    async with app.run_test(size=(100, 18)) as pilot:
        for _ in range(100):
            await asyncio.sleep(0.1)
            await pilot.pause()
            if app.failure is not None:
                raise app.failure
            picture = app.export_screenshot(title="karpenter top")
            if "Ready" in picture:
                return _FONT.sub("", picture)
    raise RuntimeError("karpenter top shows no nodes")


if __name__ == "__main__":
    asyncio.run(main())
