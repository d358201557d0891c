"""Starts the embedded and the real cluster that scenarios run on."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self, final

from karpenter_core.testing.cluster import ClusterClient
from tests.support.controlplane import ControlPlane, find_binaries
from tests.support.processes import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["EmbeddedLocalCluster", "LocalCluster", "RealLocalCluster"]

READY_SECONDS: Final = 30.0


class LocalCluster(Protocol):
    """A cluster that stands while its context is open."""

    @property
    def name(self) -> str:
        """Name of the cluster in tests."""
        ...

    @property
    def kubeconfig(self) -> Path:
        """The administrator's way in."""
        ...

    async def restart_api_server(self) -> None:
        """Kill the API server and start it again with its stored objects."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@final
class EmbeddedLocalCluster:
    """The embedded cluster over HTTP, in a process of its own."""

    name: Final = "embedded"

    def __init__(self) -> None:
        self._folder: Final = Path(tempfile.mkdtemp(prefix="embedded-"))
        self.kubeconfig: Final = self._folder / "kubeconfig"
        self._process: Final = ChildProcess(
            "embedded cluster",
            [
                sys.executable,
                "-m",
                "karpenter_core.sim",
                "--port=0",
                f"--kubeconfig={self.kubeconfig}",
            ],
            log=self._folder / "embedded.log",
        )

    async def __aenter__(self) -> Self:
        await self._process.start()
        try:
            await self._process.ready(self._answers, seconds=READY_SECONDS)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def restart_api_server(self) -> None:
        """Take the API server away for a moment; connections break, its objects are kept."""
        before = self._restarts()

        async def is_back() -> bool:
            return self._restarts() > before and await self._answers()

        self._process.signal(signal.SIGUSR1)
        await self._process.ready(is_back, seconds=READY_SECONDS)

    def _restarts(self) -> int:
        return self._process.log_text().count("restarted")

    async def _answers(self) -> bool:
        if not self.kubeconfig.exists() or not self.kubeconfig.read_text():
            return False
        async with ClusterClient(self.kubeconfig) as client:
            return await client.answers("/readyz")


@final
class RealLocalCluster:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok."""

    def __init__(
        self,
        minor: str,
        *,
        audited_users: Sequence[str] = (),
        admission_plugins: Sequence[str] = (),
        cores: int = 0,
    ) -> None:
        self.name: Final = f"kubernetes-{minor}"
        self.control_plane: Final = ControlPlane(
            find_binaries(minor),
            audited_users=audited_users,
            admission_plugins=admission_plugins,
            cores=cores,
        )

    @property
    def kubeconfig(self) -> Path:
        """The administrator's way in."""
        return self.control_plane.kubeconfig

    async def __aenter__(self) -> Self:
        await self.control_plane.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.control_plane.__aexit__(kind, error, trace)

    async def restart_api_server(self) -> None:
        """Kill the API server and start it again on the same etcd."""
        await self.control_plane.kill_api_server()
        await self.control_plane.start_api_server()
