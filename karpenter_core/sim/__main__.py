"""Runs the embedded cluster as a process: `python -m karpenter_core.sim`.

It prints `ready URL KUBECONFIG` when it answers. SIGUSR1 stops its API server for a while, as a
crash would, and keeps its objects; it prints `restarted` when the server answers again.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_core.sim.kubelets import KubeletTimes


async def _serve(options: argparse.Namespace) -> None:
    times = KubeletTimes(
        node_boot_seconds=options.node_boot_seconds,
        pod_start_seconds=options.pod_start_seconds,
        pod_stop_seconds=options.pod_stop_seconds,
    )
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    cluster = EmbeddedCluster(
        http=True,
        port=options.port,
        kubeconfig=options.kubeconfig,
        times=times,
        history_size=options.history_size,
    )
    async with cluster, asyncio.TaskGroup() as restarts:

        async def restart() -> None:
            await cluster.restart_server(down_seconds=options.down_seconds)
            _say("restarted")

        loop.add_signal_handler(signal.SIGUSR1, lambda: restarts.create_task(restart()))
        _say(f"ready {cluster.url} {cluster.kubeconfig_path}")
        await ended.wait()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    times = KubeletTimes()
    parser = argparse.ArgumentParser(
        prog="python -m karpenter_core.sim", description="Run the embedded cluster."
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--kubeconfig", type=Path, help="where to write the kubeconfig")
    parser.add_argument("--history-size", type=int, default=20_000, help="changes kept per kind")
    parser.add_argument("--node-boot-seconds", type=float, default=times.node_boot_seconds)
    parser.add_argument("--pod-start-seconds", type=float, default=times.pod_start_seconds)
    parser.add_argument("--pod-stop-seconds", type=float, default=times.pod_stop_seconds)
    parser.add_argument(
        "--down-seconds", type=float, default=1.0, help="how long SIGUSR1 takes the server away"
    )
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
