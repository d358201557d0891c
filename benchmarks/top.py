"""Measures `karpenter top` on a standing cluster, in a terminal of 80 columns: first paint, updates, CPU time.

The program runs as a user would run it, in a pseudo-terminal, against the API server of `benchmarks.standing`.
Measured are

* the time and the CPU time from the start of the process until nodes are on the screen;
* the time of an update: from the request that cordons a node to the screen that counts it, first while
  nothing else changes, then while pods change all the time, where views are a second apart;
* the CPU time of the program per second, while nothing changes and while pods change.

    python -m benchmarks.top [--nodes 1000] [--pods 30000] [--seconds 60] [--json]
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import signal
import statistics
import struct
import sys
import termios
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, final

from benchmarks.standing import ClusterSize, StandingServer, view_options
from karpenter_core.kube.resources import NODES
from karpenter_core.testing.cluster import ClusterClient

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ROWS: Final = 24
COLUMNS: Final = 80
UPDATES: Final = 20
PAUSE_SECONDS: Final = 3.0
"""Time between two updates: more than the least time between two views."""
LIMIT_SECONDS: Final = 120.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class TopMeasurement:
    """The figures of one run; seconds, and shares of a core."""

    nodes: int
    pods: int
    first_paint_seconds: float
    first_paint_cpu_seconds: float
    whole_paint_seconds: float
    """Until the pods are counted, too: nodes are shown while pods are listed."""
    whole_paint_cpu_seconds: float
    quiet_update_seconds: tuple[float, ...]
    busy_update_seconds: tuple[float, ...]
    cores_quiet: float
    cores_busy: float


@final
class TopProcess:
    """The program in a pseudo-terminal; what it writes is searched for text."""

    def __init__(self, kubeconfig: Path) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.environ |= {
                "TERM": "xterm-256color", "PROVIDERS": "kwok", "CLUSTER_NAME": "standing",
                "LANG": "C.UTF-8", "LINES": str(ROWS), "COLUMNS": str(COLUMNS),
            }  # fmt: skip
            # Installed programs have byte code; compiling all modules would take half a second of each start.
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
            program = "from karpenter_core.cli.entry import main; main()"
            os.execv(
                sys.executable,
                [sys.executable, "-c", program, "top", "--kubeconfig", str(kubeconfig)],
            )
        size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)
        os.set_blocking(self._terminal, False)
        self._text = b""
        self._arrived = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._terminal, self._read)

    def _read(self) -> None:
        try:
            self._text = (self._text + os.read(self._terminal, 1 << 16))[-(1 << 18) :]
        except OSError:
            asyncio.get_running_loop().remove_reader(self._terminal)
        self._arrived.set()

    async def wait_for(self, text: str) -> None:
        """Wait until the screen shows a text, from what is written from now on or was kept."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while (at := self._text.find(text.encode())) < 0:
                self._arrived.clear()
                await self._arrived.wait()
        self._text = self._text[at:]

    @property
    def cpu_seconds(self) -> float:
        """CPU time since the start of the process."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:  # noqa: PTH123 - no file of a disk
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def stop(self) -> None:
        """End the process."""
        asyncio.get_running_loop().remove_reader(self._terminal)
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


async def measure(size: ClusterSize, *, seconds: float, pods_per_second: float) -> TopMeasurement:
    """Return the figures on a cluster of this size."""
    async with (
        StandingServer(size, pods_per_second=pods_per_second) as server,
        ClusterClient(server.kubeconfig) as client,
    ):
        await _write_byte_code(server.kubeconfig)
        started = time.perf_counter()
        process = TopProcess(server.kubeconfig)
        try:
            await process.wait_for(f"{server.nodes} nodes")
            paint, paint_cpu = time.perf_counter() - started, process.cpu_seconds
            await process.wait_for(f"{server.pods} pods")
            whole, whole_cpu = time.perf_counter() - started, process.cpu_seconds
            await asyncio.sleep(10)
            names = [node["metadata"]["name"] for node in await client.list(NODES)]
            quiet = await _time_updates(process, client, names[:UPDATES], cordoned=0)
            cores_quiet = await _cores(process, seconds)
            server.start_churn()
            await asyncio.sleep(5)
            cores_busy = await _cores(process, seconds)
            busy = await _time_updates(
                process, client, names[UPDATES : 2 * UPDATES], cordoned=UPDATES
            )
        finally:
            process.stop()
    return TopMeasurement(
        nodes=server.nodes,
        pods=server.pods,
        first_paint_seconds=paint,
        first_paint_cpu_seconds=paint_cpu,
        whole_paint_seconds=whole,
        whole_paint_cpu_seconds=whole_cpu,
        quiet_update_seconds=tuple(quiet),
        busy_update_seconds=tuple(busy),
        cores_quiet=cores_quiet,
        cores_busy=cores_busy,
    )


async def _write_byte_code(kubeconfig: Path) -> None:
    """Run the program once, so that its modules are compiled as those of an installed program are."""
    process = TopProcess(kubeconfig)
    try:
        await process.wait_for("nodes")
    finally:
        process.stop()


async def _time_updates(
    process: TopProcess, client: ClusterClient, names: Sequence[str], *, cordoned: int
) -> list[float]:
    """Cordon nodes one by one; return the times until the screen counts them."""
    times: list[float] = []
    for number, name in enumerate(names, start=cordoned + 1):
        await asyncio.sleep(PAUSE_SECONDS)
        started = time.perf_counter()
        await client.patch(NODES, name, {"spec": {"unschedulable": True}})
        await process.wait_for(f"{number} Cordoned")
        times.append(time.perf_counter() - started)
    return times


async def _cores(process: TopProcess, seconds: float) -> float:
    before, started = process.cpu_seconds, time.perf_counter()
    await asyncio.sleep(seconds)
    return (process.cpu_seconds - before) / (time.perf_counter() - started)


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
    print(
        f"{found.nodes} nodes, {found.pods} pods, {options.pods_per_second:g} pods change a second"
    )
    print(
        f"first paint   {found.first_paint_seconds:.3f} s from the start of the process "
        f"({found.first_paint_cpu_seconds:.2f} s of CPU time)"
    )
    print(
        f"  with pods   {found.whole_paint_seconds:.3f} s ({found.whole_paint_cpu_seconds:.2f} s of CPU time)"
    )
    for name, updates in (
        ("update", found.quiet_update_seconds),
        ("  busy", found.busy_update_seconds),
    ):
        print(f"{name:<13} median {statistics.median(updates):.3f} s, most {max(updates):.3f} s")
    print(f"CPU           {100 * found.cores_quiet:.1f} % of a core while nothing changes")
    print(f"  busy        {100 * found.cores_busy:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
