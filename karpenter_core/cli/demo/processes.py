"""The processes of a demo: the embedded cluster and the controller."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from karpenter_core.cli.demo.demo_manifests import NAME

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

__all__ = [
    "DemoFailedError",
    "controller",
    "embedded_cluster",
    "free_port",
    "log_tail",
    "next_line",
]

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.1
_LOG_LINES: Final = 5
_LOG_COLUMNS: Final = 400
_RUN: Final = (sys.executable, "-c", "from karpenter_core.cli.entry import main; main()", "run")


class DemoFailedError(Exception):
    """A step failed or timed out; has the reason."""


@asynccontextmanager
async def embedded_cluster(folder: Path) -> AsyncGenerator[Path]:
    """Run the embedded cluster in its own process; yield its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    arguments = [sys.executable, "-m", "karpenter_core.sim", f"--kubeconfig={kubeconfig}"]
    log = folder / "cluster.log"
    async with _process(arguments, log) as process:
        await _ready(process, lambda: "ready " in log.read_text(), log)
        yield kubeconfig


@asynccontextmanager
async def controller(
    kubeconfig: Path,
    folder: Path,
    *,
    provider: str,
    environment: Mapping[str, str] | None,
    dashboard_port: int = 0,
) -> AsyncGenerator[Path]:
    """Run the controller in its own process; yield its log once it is ready.

    It serves the dashboard if a port for it is given.
    """
    metrics_port, probe_port = free_port(), free_port()
    log = folder / "controller.log"
    arguments = [
        *_RUN,
        f"--kubeconfig={kubeconfig}",
        f"--providers={provider}",
        "--bind-address=127.0.0.1",
        f"--metrics-port={metrics_port}",
        f"--health-probe-port={probe_port}",
        f"--dashboard-port={dashboard_port}",
        f"--cache-folder={folder / 'cache'}",
        f"--leader-election-name={NAME}",
        f"--leader-election-namespace={NAME}",
    ]
    async with _process(arguments, log, environment) as process:
        await _ready(process, lambda: _answers(probe_port), log)
        yield log


def log_tail(log: Path) -> str:
    """Return the last lines of a log, shortened."""
    if not log.exists():
        return ""
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return "\n".join(line[:_LOG_COLUMNS] for line in lines)


@asynccontextmanager
async def _process(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start a process that Ctrl-C in the terminal does not reach, and stop it cleanly."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            process_group=0,
            env={**os.environ, **(environment or {})},
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _ready(
    process: asyncio.subprocess.Process, is_ready: Callable[[], bool], log: Path
) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + _START_SECONDS
    while not is_ready():
        if process.returncode is not None or loop.time() > end:
            state = "ended" if process.returncode is not None else "is not ready"
            raise DemoFailedError(f"the {log.stem} {state}:\n{log_tail(log)}")
        await asyncio.sleep(_POLL_SECONDS)


def _answers(port: int) -> bool:
    """Request `/readyz` on loopback."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


async def next_line(terminal: TextIO) -> None:
    """Wait for a line; other tasks go on, and a cancellation needs no line."""
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(terminal, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(terminal)
    terminal.readline()


def free_port() -> int:
    """Return a free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
