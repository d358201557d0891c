"""Measures how a scheduling pass delays the rest of the process.

A server in a process of its own holds the pods of `diverse-20000` and sends a thousand changes of
pods a second. This process does what a controller does with one event loop: it lists and watches
the pods over HTTP, decodes, folds into the state, holds a leader lease, and solves the 20,000 pods
in the planner's thread, again and again. Measured, with nothing solved and while it is solved: how
many events a second arrive, how old they are when the state has them, how late the event loop is
for a timer due every 5 ms, and the gaps between renewals of the lease as the server saw them.

    python benchmarks/interference.py [--seconds 20] [--case diverse-20000/real] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog
from aiohttp import web

from benchmarks.inputs import CREATED, load
from benchmarks.measure import quantile
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.planner import ThreadPlanner
from karpenter_core.kube import resources
from karpenter_core.kube.api import KubeApi
from karpenter_core.kube.client import connect
from karpenter_core.kube.garbage_collector import tune_gc
from karpenter_core.kube.informer import Informer
from karpenter_core.kube.lease import ElectionTimes, LeaseElector
from karpenter_core.kube.wire.codecs import Codecs
from karpenter_core.operator.clock import SystemClock
from karpenter_core.sim.http_server import write_kubeconfig
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import ObjectObserved, ObjectRemoved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.mixes import PodTemplate

__all__ = ["PhaseMeasurement", "run", "summarize"]

EVENTS_PER_SECOND: Final = 1000
TICK_SECONDS: Final = 0.01
SAMPLE_SECONDS: Final = 0.005
PADDING_BYTES: Final = 2500
"""The parts of a pod that nobody here reads: managed fields, status of containers."""

LATE_RENEWAL_SECONDS: Final = 1.0
"""A renewal that comes later than this after it was due counts as missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMeasurement:
    """The figures of one phase; `passes` are the seconds of each pass solved in it."""

    name: str
    seconds: float
    passes: tuple[float, ...]
    events_per_second: float
    event_age_p99_ms: float
    loop_lag_p50_ms: float
    loop_lag_p99_ms: float
    loop_lag_max_ms: float
    renewals: int
    longest_renewal_gap_seconds: float
    renewals_missed: int


# -- the server ------------------------------------------------------------------------------------


class PodServer:
    """Pods that change all the time, and one lease."""

    def __init__(self, case: str) -> None:
        self._lines = list(_pod_lines(load(case).pods))
        self._lease: dict[str, Any] | None = None
        self._version = 1
        self._renewed: list[float] = []

    def app(self) -> web.Application:
        """Return the routes."""
        app = web.Application()
        lease = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        app.router.add_get("/api/v1/pods", self._watch)
        app.router.add_get(f"{lease}/{{name}}", self._get_lease)
        app.router.add_post(lease, self._write_lease)
        app.router.add_patch(f"{lease}/{{name}}", self._write_lease)
        app.router.add_get("/renewals", self._renewals)
        return app

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        version = str(time.monotonic_ns())
        for start in range(0, len(self._lines), 200):
            batch = self._lines[start : start + 200]
            await response.write("".join(_event("ADDED", line, version) for line in batch).encode())
        ended = {"annotations": {"k8s.io/initial-events-end": "true"}, "resourceVersion": version}
        bookmark = {"kind": "Pod", "apiVersion": "v1", "metadata": ended}
        await response.write(json.dumps({"type": "BOOKMARK", "object": bookmark}).encode() + b"\n")
        with suppress(ConnectionResetError):
            await self._change(response)
        return response

    async def _change(self, response: web.StreamResponse) -> None:
        """Send changes at an even rate, each with the moment of its sending as its version."""
        started, sent = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - started) * EVENTS_PER_SECOND)
            lines = (self._lines[number % len(self._lines)] for number in range(sent, due))
            text = "".join(_event("MODIFIED", line, str(time.monotonic_ns())) for line in lines)
            if text:
                await response.write(text.encode())
            sent = due
            await asyncio.sleep(TICK_SECONDS)

    async def _get_lease(self, _request: web.Request) -> web.Response:
        if self._lease is None:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        return web.json_response(self._lease)

    async def _write_lease(self, request: web.Request) -> web.Response:
        self._renewed.append(time.monotonic())
        self._version += 1
        written = json.loads(await request.read())
        self._lease = {
            "metadata": {"name": "leader", "resourceVersion": str(self._version)},
            "spec": written["spec"],
        }
        return web.json_response(self._lease)

    async def _renewals(self, _request: web.Request) -> web.Response:
        return web.json_response(self._renewed)


def _pod_lines(templates: Sequence[PodTemplate]) -> Iterator[str]:
    """Yield each pod as JSON that lacks its first brace and its version."""
    known: dict[int, str] = {}
    for number, template in enumerate(templates):
        if id(template) not in known:
            manifest = template.manifest()
            manifest["metadata"] |= {
                "creationTimestamp": CREATED.isoformat(),
                "managedFields": [{"manager": "x" * PADDING_BYTES}],
            }
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            manifest["status"] = {"phase": "Pending", "conditions": [condition]}
            manifest["metadata"]["name"] = manifest["metadata"]["uid"] = "@NAME@"
            manifest["metadata"]["resourceVersion"] = "@VERSION@"
            known[id(template)] = json.dumps({"kind": "Pod", "apiVersion": "v1", **manifest})
        yield known[id(template)].replace("@NAME@", f"pod-{number}")


def _event(kind: str, line: str, version: str) -> str:
    return f'{{"type":"{kind}","object":{line.replace("@VERSION@", version)}}}\n'


def serve(case: str) -> None:
    """Serve until ended; the first line printed is the port."""

    async def listen() -> None:
        runner = web.AppRunner(PodServer(case).app(), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await _forever()

    asyncio.run(listen())


# -- the controller --------------------------------------------------------------------------------


class _PodIngest:
    """Folds what the watch says and notes how old it was."""

    def __init__(self, clock: SystemClock) -> None:
        self.cluster_state = ClusterState(StateBuilder({}), clock)
        self.ages: list[float] = []

    def take(self, change: ObjectObserved | ObjectRemoved) -> None:
        self.cluster_state.fold(change)
        pod = change.object
        version = getattr(pod, "resource_version", 0)
        self.ages.append((time.monotonic_ns() - version) / 1e9)


async def _forever() -> None:
    await asyncio.Event().wait()


async def _sample_lag(lags: list[float]) -> None:
    while True:
        due = time.monotonic() + SAMPLE_SECONDS
        await asyncio.sleep(SAMPLE_SECONDS)
        lags.append(time.monotonic() - due)


def run(case: str, seconds: float) -> list[PhaseMeasurement]:
    """Measure both phases against a server that is started and ended here."""
    command = [sys.executable, __file__, "--serve", "--case", case]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(server.stdout.readline()) if server.stdout else 0
            return asyncio.run(_control(f"http://127.0.0.1:{port}", case, seconds))
        finally:
            server.terminate()


async def _control(url: str, case: str, seconds: float) -> list[PhaseMeasurement]:
    clock, codecs = SystemClock(), Codecs()
    asked = load(case)
    problem = asked.problem
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        write_kubeconfig(kubeconfig, url)
        transports = [await connect(kubeconfig=str(kubeconfig), clock=clock) for _ in range(2)]
    ingest, lags, phases = _PodIngest(clock), list[float](), list[PhaseMeasurement]()
    informer = Informer(
        resources.PODS,
        codecs.for_kind(resources.PODS),
        KubeApi(transports[0], clock=clock),
        clock=clock,
        sink=ingest.take,
        jitter=None,
        on_invalid=None,
    )
    elector = LeaseElector(
        KubeApi(transports[1], clock=clock), clock=clock, namespace="default", identity="us"
    )
    undo = tune_gc()
    following = asyncio.create_task(informer.run())
    leading = asyncio.create_task(elector.lead(_forever))
    sampling = asyncio.create_task(_sample_lag(lags))
    try:
        await informer.synced.wait()
        await asyncio.sleep(2.0)  # whatever piled up while listing
        for name in ("idle", "solving"):
            ingest.ages.clear()
            lags.clear()
            started, passes = time.monotonic(), list[float]()
            while time.monotonic() - started < seconds:
                if name == "idle":
                    await asyncio.sleep(seconds)
                    continue
                planner = ThreadPlanner(clock)  # a new one has nothing compiled
                await planner.warm()
                began = time.monotonic()
                await planner.plan(problem, asked.options)
                passes.append(time.monotonic() - began)
                planner.close()
            took = time.monotonic() - started
            body = await _fetch(f"{url}/renewals")
            phases.append(
                summarize(
                    name,
                    seconds=took,
                    passes=passes,
                    ages=ingest.ages,
                    lags=lags,
                    renewed=json.loads(body),
                    started=started,
                )
            )
        if leading.done():
            leading.result()
        return phases
    finally:
        for task in (following, leading, sampling):
            task.cancel()
        await asyncio.gather(following, leading, sampling, return_exceptions=True)
        for transport in transports:
            await transport.close()
        undo()


async def _fetch(url: str) -> bytes:
    import aiohttp

    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.read()


def summarize(
    name: str,
    *,
    seconds: float,
    passes: list[float],
    ages: list[float],
    lags: list[float],
    renewed: list[float],
    started: float,
) -> PhaseMeasurement:
    """Boil a phase down; `renewed` are the moments of all renewals, of other phases too.

    The gap that reaches into the phase counts as its own.
    """
    moments = [moment for moment in renewed if moment <= started][-1:]
    moments += [moment for moment in renewed if moment > started]
    gaps = [later - before for before, later in pairwise(moments)]
    due = ElectionTimes().retry_seconds
    return PhaseMeasurement(
        name=name,
        seconds=seconds,
        passes=tuple(passes),
        events_per_second=len(ages) / seconds,
        event_age_p99_ms=1000 * quantile(ages, 0.99),
        loop_lag_p50_ms=1000 * quantile(lags, 0.5),
        loop_lag_p99_ms=1000 * quantile(lags, 0.99),
        loop_lag_max_ms=1000 * max(lags),
        renewals=len(gaps),
        longest_renewal_gap_seconds=max(gaps, default=seconds),
        renewals_missed=sum(gap > due + LATE_RENEWAL_SECONDS for gap in gaps),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", default="diverse-20000/real")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase, at least")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.case)
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    for phase in run(arguments.case, arguments.seconds):
        if arguments.json:
            print(json.dumps(asdict(phase)))
            continue
        passes = ", ".join(f"{took:.1f}" for took in phase.passes) or "none"
        print(
            f"{phase.name}: {phase.seconds:.0f} s, passes {passes} s; "
            f"{phase.events_per_second:.0f} events/s, p99 {phase.event_age_p99_ms:.0f} ms old; "
            f"loop lag p50 {phase.loop_lag_p50_ms:.1f}, p99 {phase.loop_lag_p99_ms:.1f}, "
            f"max {phase.loop_lag_max_ms:.0f} ms; {phase.renewals} renewals, longest gap "
            f"{phase.longest_renewal_gap_seconds:.1f} s, {phase.renewals_missed} missed"
        )


if __name__ == "__main__":
    main()
