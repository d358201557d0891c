"""Measures the dashboard of a controller on a standing cluster: first paint, updates, overhead.

Controllers run on the standing cluster of `benchmarks.standing`, whose pods change all the time: one
without the dashboard, then one with it. Measured are

* the time until a Chromium that opens the page shows the nodes, and its longest task while updates arrive;
* the time of an update: from a request that computes the state anew to its last byte, which is what a
  controller under load answers in;
* the times of explanations, which run in the background;
* the CPU time of the controller without a dashboard, with one that nobody looks at, and with one page and
  with five open; and that of the dashboard's own threads, which does not drown in the controller's work.

    python -m benchmarks.dashboard [--nodes 1000] [--pods 30000] [--seconds 60] [--json]
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp

from benchmarks.standing import ClusterSize, StandingServer, view_options
from karpenter_core.cli.demo.processes import free_port
from tests.support.controller import ControllerProcess

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence


FILES: Final = ("", "style.css", "app.js", "client.js", "details.js", "elements.js", "format.js")
UPDATES: Final = 20
BROWSE_SECONDS: Final = 20.0
SETTLE_SECONDS: Final = 20.0
"""Time after which a controller has planned what there is to plan."""


@dataclass(frozen=True, slots=True)
class DashboardMeasurement:
    """The figures of one run; seconds, bytes, and shares of a core."""

    nodes: int
    pods: int
    first_paint_seconds: float
    """From the address to the nodes on the screen; 0 without a Chromium."""
    longest_task_seconds: float
    """The longest time that the page does not answer while updates arrive; 0 = less than 50 ms."""
    first_state_seconds: float
    """The files of the page and the state, without a browser."""
    state_bytes: int
    update_seconds: tuple[float, ...]
    explain_seconds: dict[str, float]
    stream_bytes_per_second: float
    cores_without: float
    cores_alone: float
    cores_with_one_page: float
    cores_with_five_pages: float
    view_cores_alone: float
    """Of the threads of the dashboard alone, by their own clock."""
    view_cores_with_one_page: float
    view_cores_with_five_pages: float


async def measure(
    size: ClusterSize, *, seconds: float, pods_per_second: float
) -> DashboardMeasurement:
    """Return the figures of a controller on a cluster of this size."""
    async with StandingServer(size, pods_per_second=pods_per_second) as server:
        server.start_churn()
        async with _controller(server, port=0) as controller:
            without, _ = await _cores(controller, seconds)
        port = free_port()
        async with _controller(server, port=port) as controller:
            return await _measure(controller, port, server, seconds=seconds, without=without)


@asynccontextmanager
async def _controller(server: StandingServer, *, port: int) -> AsyncGenerator[ControllerProcess]:
    """Run a controller; yield it once it has planned what there is to plan."""
    with tempfile.TemporaryDirectory() as name:
        controller = ControllerProcess(
            "controller",
            kubeconfig=server.kubeconfig,
            folder=Path(name),
            # On a busy host a Lease may be lost, which ends a controller: that is not measured here.
            options={
                "providers": "kwok",
                "dashboard-port": str(port),
                "disable-leader-election": "true",
            },
            environment={**os.environ, "CLUSTER_NAME": "standing"},
        )
        await controller.start()
        try:
            await asyncio.sleep(SETTLE_SECONDS)
            yield controller
        except (RuntimeError, OSError) as error:
            raise RuntimeError(f"{error}\n{controller.process.log_tail()}") from error
        finally:
            await controller.process.stop()


async def _measure(
    controller: ControllerProcess,
    port: int,
    server: StandingServer,
    *,
    seconds: float,
    without: float,
) -> DashboardMeasurement:
    url = f"http://127.0.0.1:{port}/"
    alone, view_alone = await _cores(controller, seconds)
    async with aiohttp.ClientSession() as session:
        started = time.perf_counter()
        for file in FILES:
            await _fetch(session, url + file)
        state = await _fetch(session, f"{url}dashboard/v1/state")
        first = time.perf_counter() - started
        updates = await _time_updates(session, f"{url}dashboard/v1/state")
        explanations = await _time_explanations(session, url, state)
    sizes: list[int] = []
    with_pages: list[tuple[float, float]] = []
    stream = 0.0
    for pages in (1, 5):
        tasks = [asyncio.create_task(_view(url, sizes)) for _ in range(pages)]
        await asyncio.sleep(5)
        sizes.clear()
        with_pages.append(await _cores(controller, seconds))
        if pages == 1:
            stream = sum(sizes) / seconds
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    paint, longest = await asyncio.to_thread(_browse, url)
    return DashboardMeasurement(
        nodes=server.nodes,
        pods=server.pods,
        first_paint_seconds=paint,
        longest_task_seconds=longest,
        first_state_seconds=first,
        state_bytes=len(state),
        update_seconds=tuple(updates),
        explain_seconds=explanations,
        stream_bytes_per_second=stream,
        cores_without=without,
        cores_alone=alone,
        cores_with_one_page=with_pages[0][0],
        cores_with_five_pages=with_pages[1][0],
        view_cores_alone=view_alone,
        view_cores_with_one_page=with_pages[0][1],
        view_cores_with_five_pages=with_pages[1][1],
    )


def _browse(url: str) -> tuple[float, float]:
    """Return the seconds until a browser shows the nodes, and its longest task in the next seconds."""
    from tests.support.browser import Browser

    with Browser() as browser:
        browser.driver.get("about:blank")
        started = time.perf_counter()
        browser.driver.get(url)
        rows = "document.querySelectorAll('#nodes-table tbody button').length"
        browser.wait(lambda: browser.run(rows), 30)
        shown = time.perf_counter() - started
        browser.run(
            "(() => { window.longest = 0; new PerformanceObserver((list) => { for (const each of list.getEntries())"
            " window.longest = Math.max(window.longest, each.duration); }).observe({type: 'longtask'}); })()"
        )
        time.sleep(BROWSE_SECONDS)
        return shown, browser.run("window.longest") / 1000


async def _time_explanations(
    session: aiohttp.ClientSession, url: str, state: bytes
) -> dict[str, float]:
    """Return the seconds of one explanation of each kind."""
    found: dict[str, float] = {}
    node = max(json.loads(state)["nodes"], key=lambda row: row["pods"])["name"]
    pods = json.loads(await _fetch(session, f"{url}dashboard/v1/pods?node={node}"))["pods"]
    for name, path in (
        ("node", f"explain?node={node}"),
        ("pod", f"explain?pod={pods[0]['pod']}"),
        ("rebalance", "rebalance"),
    ):
        started = time.perf_counter()
        await _fetch(session, f"{url}dashboard/v1/{path}")
        found[name] = time.perf_counter() - started
    return found


async def _fetch(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as response:
        body = await response.read()
        if response.status != HTTPStatus.OK:
            raise RuntimeError(f"{url}: {response.status} {body.decode()[:500]}")
        return body


async def _time_updates(session: aiohttp.ClientSession, url: str) -> list[float]:
    """Return the times of requests that are further apart than views of this size are computed."""
    times: list[float] = []
    for _ in range(UPDATES):
        await asyncio.sleep(5)
        started = time.perf_counter()
        await _fetch(session, url)
        times.append(time.perf_counter() - started)
    return times


async def _view(url: str, sizes: list[int]) -> None:
    """Read the stream as a page does."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.get(f"{url}dashboard/v1/events") as response,
    ):
        await _fetch(session, f"{url}dashboard/v1/state")
        async for chunk in response.content.iter_any():
            sizes.append(len(chunk))  # noqa: PERF401 - while the stream goes on


async def _cores(controller: ControllerProcess, seconds: float) -> tuple[float, float]:
    """Return the CPU time per second of the process, and of the threads of its dashboard."""
    process = controller.process
    views = await _view_cpu_seconds(controller)
    before, started = process.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(seconds)
    taken, passed = process.cpu_seconds() - before, time.perf_counter() - started
    return taken / passed, (await _view_cpu_seconds(controller) - views) / passed


async def _view_cpu_seconds(controller: ControllerProcess) -> float:
    """Return the CPU time of the dashboard so far; 0 without one."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in (await controller.metrics()).splitlines()
        if line.startswith("karpenter_core_dashboard_cpu_seconds_total{")
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    options = view_options(__doc__, arguments)
    found = asyncio.run(
        measure(
            ClusterSize(options.nodes, options.pods),
            seconds=options.seconds,
            pods_per_second=options.pods_per_second,
        )
    )
    if options.json:
        print(json.dumps(asdict(found)))
        return 0
    updates = found.update_seconds
    print(
        f"{found.nodes} nodes, {found.pods} pods, {options.pods_per_second:g} pods change a second"
    )
    longest = 1000 * found.longest_task_seconds
    print(
        f"first paint   {found.first_paint_seconds:.3f} s in Chromium, longest task {longest:.0f} ms"
    )
    print(f"first state   {found.first_state_seconds:.3f} s ({found.state_bytes / 1024:.0f} KiB)")
    print(f"update        median {statistics.median(updates):.3f} s, most {max(updates):.3f} s")
    print(f"stream        {found.stream_bytes_per_second / 1024:.1f} KiB/s")
    for name, taken in found.explain_seconds.items():
        print(f"explain       {name}: {taken:.3f} s")
    print(f"controller    {100 * found.cores_without:.1f} % of a core without a dashboard")
    one, five = found.cores_with_one_page, found.cores_with_five_pages
    print(f"  no page     {100 * found.cores_alone:.1f} %")
    print(f"  one page    {100 * one:.1f} %, five pages {100 * five:.1f} %")
    print(
        f"dashboard     {100 * found.view_cores_alone:.2f} % of a core without a page, "
        f"{100 * found.view_cores_with_one_page:.2f} % with one, "
        f"{100 * found.view_cores_with_five_pages:.2f} % with five"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
