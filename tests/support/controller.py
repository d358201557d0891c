"""Runs `karpenter run` as a child process of a test."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, final

import aiohttp

from tests.support.processes import ChildProcess, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["RUN", "ControllerProcess"]

READY_SECONDS: Final = 60.0
RUN: Final = (sys.executable, "-c", "from karpenter_core.cli.entry import main; main()", "run")


@final
class ControllerProcess:
    """One controller; may be started again after it ended, with the same options.

    `options` are those of `karpenter run`, by flag without dashes in front. `path` is put in
    front of the module search path, for plug-ins that are not installed. `command` runs something
    else in the place of `karpenter run`.
    """

    __slots__ = ("metrics_url", "probe_url", "process")

    def __init__(
        self,
        name: str,
        *,
        kubeconfig: Path,
        folder: Path,
        options: Mapping[str, str],
        path: Sequence[Path] = (),
        environment: Mapping[str, str],
        command: Sequence[str] = RUN,
    ) -> None:
        metrics_port, probe_port = free_ports(2)
        self.metrics_url: Final = f"http://127.0.0.1:{metrics_port}/metrics"
        self.probe_url: Final = f"http://127.0.0.1:{probe_port}"
        merged = {
            "kubeconfig": str(kubeconfig),
            "bind-address": "127.0.0.1",
            "metrics-port": str(metrics_port),
            "health-probe-port": str(probe_port),
            "cache-folder": str(folder / "cache"),
            **options,
        }
        search = [str(each) for each in path]
        if environment.get("PYTHONPATH"):
            search.append(environment["PYTHONPATH"])
        self.process: Final = ChildProcess(
            name,
            [*command, *(f"--{flag}={value}" for flag, value in merged.items())],
            log=folder / f"{name}.log",
            environment={**environment, "PYTHONPATH": ":".join(search)},
        )

    async def start(self, *, wait: bool = True) -> None:
        """Start it and, if asked, wait until it says that it is ready."""
        await self.process.start()
        if wait:
            await self.process.ready(self.is_ready, seconds=READY_SECONDS)

    async def is_ready(self) -> bool:
        """Return whether `/readyz` answers with success."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self.probe_url}/readyz") as response,
            ):
                return response.ok
        except aiohttp.ClientError:
            return False

    async def readiness(self) -> tuple[int, str]:
        """Return status and text of `/readyz`."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.probe_url}/readyz") as response,
        ):
            return response.status, await response.text()

    async def metrics(self) -> str:
        """Return the metrics in Prometheus' text form."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(self.metrics_url) as response,
        ):
            return await response.text()
