"""Measures the dashboard of a controller on a standing cluster: first data, updates, overhead.

A controller runs on the standing cluster of `benchmarks.standing`, whose pods change all the time.
Measured are the time until the state of a page that was just opened is there (and the page's files
before it), the time that an update takes from the clock's turn to the last byte at the viewer, as the
controller's own thread computes it, and the CPU time of the controller while nobody looks, while one
page is open, and while five are.

    python -m benchmarks.dashboard [--nodes 1000] [--pods 30000] [--seconds 60] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp

from benchmarks.standing import ClusterSize, StandingServer
from karpenter_core.cli.demo.processes import free_port
from tests.support.controller import ControllerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.processes import ChildProcess

FILES: Final = ("", "style.css", "app.js", "elements.js", "format.js")
SETTLE_SECONDS: Final = 20.0
"""Time after which a controller has planned what there is to plan."""


@dataclass(frozen=True, slots=True)
class DashboardMeasurement:
    """The figures of one run; seconds, bytes, and shares of a core."""

    nodes: int
    pods: int
    files_seconds: float
    first_state_seconds: float
    """With the files: a page that shows the cluster has waited for both."""
    state_bytes: int
    update_seconds: tuple[float, ...]
    """From a request that computes the state anew to its last byte."""
    stream_bytes_per_second: float
    cores_alone: float
    cores_with_one_page: float
    cores_with_five_pages: float


async def measure(
    size: ClusterSize, *, seconds: float, pods_per_second: float
) -> DashboardMeasurement:
    """Return the figures of a controller on a cluster of this size."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        async with StandingServer(size, pods_per_second=pods_per_second) as server:
            controller = ControllerProcess(
                "controller",
                kubeconfig=server.kubeconfig,
                folder=Path(name),
                options={"providers": "kwok", "dashboard-port": str(port)},
                environment={**os.environ, "CLUSTER_NAME": "standing"},
            )
            await controller.start()
            try:
                server.start_churn()
                await asyncio.sleep(SETTLE_SECONDS)
                return await _measure(controller.process, port, server, seconds)
            except RuntimeError as error:
                raise RuntimeError(f"{error}\n{controller.process.log_tail()}") from error
            finally:
                await controller.process.stop()


async def _measure(
    process: ChildProcess, port: int, server: StandingServer, seconds: float
) -> DashboardMeasurement:
    url = f"http://127.0.0.1:{port}/"
    async with aiohttp.ClientSession() as session:
        started = time.perf_counter()
        for file in FILES:
            await _fetch(session, url + file)
        files = time.perf_counter() - started
        state = await _fetch(session, f"{url}dashboard/v1/state")
        first = time.perf_counter() - started
        updates = await _time_updates(session, f"{url}dashboard/v1/state")
        alone = await _cores(process, seconds)
        sizes: list[int] = []
        with_pages: list[float] = []
        stream = 0.0
        for pages in (1, 5):
            tasks = [asyncio.create_task(_view(url, sizes)) for _ in range(pages)]
            await asyncio.sleep(5)
            sizes.clear()
            with_pages.append(await _cores(process, seconds))
            if pages == 1:
                stream = sum(sizes) / seconds
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
    return DashboardMeasurement(
        nodes=server.nodes,
        pods=server.pods,
        files_seconds=files,
        first_state_seconds=first,
        state_bytes=len(state),
        update_seconds=tuple(updates),
        stream_bytes_per_second=stream,
        cores_alone=alone,
        cores_with_one_page=with_pages[0],
        cores_with_five_pages=with_pages[1],
    )


async def _fetch(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as response:
        body = await response.read()
        if response.status != HTTPStatus.OK:
            raise RuntimeError(f"{url}: {response.status} {body.decode()[:500]}")
        return body


async def _time_updates(session: aiohttp.ClientSession, url: str) -> list[float]:
    """Return the times of requests that are further apart than the interval of the views."""
    times: list[float] = []
    for _ in range(10):
        await asyncio.sleep(2.5)
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


async def _cores(process: ChildProcess, seconds: float) -> float:
    """Return the CPU time per second of the process."""
    before, started = process.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(seconds)
    return (process.cpu_seconds() - before) / (time.perf_counter() - started)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=30_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pods-per-second", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
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
    print(f"first state   {found.first_state_seconds:.3f} s ({found.state_bytes / 1024:.0f} KiB)")
    print(f"update        median {statistics.median(updates):.3f} s, most {max(updates):.3f} s")
    print(f"stream        {found.stream_bytes_per_second / 1024:.1f} KiB/s")
    print(f"controller    {100 * found.cores_alone:.1f} % of a core without a page")
    one, five = found.cores_with_one_page, found.cores_with_five_pages
    print(f"  one page    {100 * one:.1f} %, five pages {100 * five:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
