"""Leader election and the fence."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from karpenter_core.errors import FencedError
from karpenter_core.kube import resources
from karpenter_core.kube.api import KubeApi
from karpenter_core.kube.fence import AlwaysLeaderFence, LeaseFence
from karpenter_core.kube.lease import ElectionTimes, LeaseElector, default_identity
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.sim.apiserver import ApiServer
from karpenter_core.sim.direct import DirectTransport
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_core.sim.frontend import ServerFrontend
from karpenter_core.sim.virtual_time import LoopClock, run_virtual, until


class LeaseCandidates:
    """An API server and the candidates for its lease."""

    def __init__(self):
        self.clock = LoopClock()
        self.server = ApiServer(self.clock)
        self.history: list[tuple[str, str, float]] = []

    def candidate(self, identity, frontend=None, transport=None, on_renewed=None):
        transport = transport or DirectTransport(frontend or ServerFrontend(self.server))
        return LeaseElector(
            KubeApi(transport, clock=self.clock),
            clock=self.clock,
            namespace="kube-system",
            identity=identity,
            labels={"app": "karpenter"},
            jitter=lambda: 0.5,
            on_renewed=on_renewed,
        )

    def lead(self, elector, identity):
        async def work():
            elector.fence.check()
            self.history.append((identity, "leads", self.clock.monotonic()))
            try:
                await asyncio.Event().wait()
            finally:
                self.history.append((identity, "stopped", self.clock.monotonic()))

        return asyncio.ensure_future(elector.lead(work))

    @property
    def lease(self):
        return self.server.registry.read(
            resources.LEASES, "karpenter-leader-election", "kube-system"
        )


class SlowAnswers:
    """A connection on which requests arrive at once and answers to writes take their time."""

    def __init__(self, transport):
        self._transport = transport
        self.seconds = 0.0

    async def request(self, request):
        response = await self._transport.request(request)
        if request.method != "GET":
            await asyncio.sleep(self.seconds)
        return response


async def end(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def test_the_first_candidate_leads_and_keeps_renewing():
    """The second waits."""

    async def scenario():
        candidates = LeaseCandidates()
        first, second = candidates.candidate("first"), candidates.candidate("second")
        tasks = candidates.lead(first, "first"), candidates.lead(second, "second")
        await asyncio.sleep(300)
        assert candidates.history == [("first", "leads", 0)]
        spec = candidates.lease["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("first", 15)
        assert spec["leaseTransitions"] == 0
        assert candidates.lease["metadata"]["labels"] == {"app": "karpenter"}
        assert second.holder == "first"
        with pytest.raises(FencedError, match="not held"):
            second.fence.check()
        await end(*tasks)

    run_virtual(scenario())


def test_intervals_of_renewals_are_reported():
    """Of the leader's only, and longer where the API server was slow."""

    async def scenario():
        candidates, intervals = LeaseCandidates(), []
        slow = SlowAnswers(DirectTransport(ServerFrontend(candidates.server)))
        leader = candidates.candidate("leader", transport=slow, on_renewed=intervals.append)
        standby = candidates.candidate("standby", on_renewed=lambda _: pytest.fail("not leading"))
        tasks = candidates.lead(leader, "leader"), candidates.lead(standby, "standby")
        await asyncio.sleep(11)
        assert intervals == [2.0] * 5
        slow.seconds = 4.0
        await asyncio.sleep(20)
        assert intervals[-1] == 6.0
        await end(*tasks)

    run_virtual(scenario())


def test_a_clean_stop_releases_the_lease_within_one_retry():
    """Work is stopped first, then the lease is released, then the next one takes it."""

    async def scenario():
        candidates = LeaseCandidates()
        first, second = candidates.candidate("first"), candidates.candidate("second")
        tasks = candidates.lead(first, "first"), candidates.lead(second, "second")
        await asyncio.sleep(60)
        tasks[0].cancel()
        await asyncio.wait({tasks[0]})
        spec = candidates.lease["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)
        with pytest.raises(FencedError):
            first.fence.check()
        await asyncio.sleep(4)
        assert [(who, what) for who, what, _ in candidates.history] == [
            ("first", "leads"),
            ("first", "stopped"),
            ("second", "leads"),
        ]
        assert candidates.lease["spec"]["leaseTransitions"] == 1
        await end(tasks[1])

    run_virtual(scenario())


def test_a_dead_leader_is_replaced_when_its_lease_runs_out():
    """And not before: the wait counts from what the others saw last."""

    async def scenario():
        candidates = LeaseCandidates()
        frontend = ServerFrontend(candidates.server)
        first, second = candidates.candidate("first", frontend), candidates.candidate("second")
        tasks = candidates.lead(first, "first"), candidates.lead(second, "second")
        await asyncio.sleep(60)
        frontend.stop()
        await asyncio.sleep(40)
        (_, _, stopped), (_, _, took_over) = candidates.history[1:]
        assert 68 <= stopped <= 70
        assert 73 <= took_over <= 80
        with pytest.raises(FencedError, match=r"not held|not renewed"):
            tasks[0].result()
        await end(tasks[1])

    run_virtual(scenario())


def test_a_short_outage_loses_nothing():
    """Renewals are tried until the deadline."""

    async def scenario():
        candidates = LeaseCandidates()
        frontend = ServerFrontend(candidates.server)
        elector = candidates.candidate("first", frontend)
        task = candidates.lead(elector, "first")
        await asyncio.sleep(60)
        frontend.stop()
        await asyncio.sleep(7)
        frontend.start()
        await asyncio.sleep(60)
        assert candidates.history == [("first", "leads", 0)]
        elector.fence.check()
        await end(task)

    run_virtual(scenario())


def test_a_proxy_that_has_lost_its_server_does_not_cost_the_lease():
    """Its 404 is not that of a Lease that was deleted."""

    async def scenario():
        candidates = LeaseCandidates()
        frontend = ServerFrontend(candidates.server)
        elector = candidates.candidate("first", frontend)
        task = candidates.lead(elector, "first")
        await asyncio.sleep(60)
        fault = frontend.faults.add(RequestFault(matches=matching(), is_page=True, times=None))
        await asyncio.sleep(7)
        frontend.faults.remove(fault)
        await asyncio.sleep(60)
        assert frontend.faults.hits >= 3
        assert candidates.history == [("first", "leads", 0)]
        elector.fence.check()
        await end(task)

    run_virtual(scenario())


@pytest.mark.parametrize("drop", ["drop_reply", "drop_request"])
def test_a_lost_answer_does_not_cost_the_lease(drop):
    """The write was done, its version is unknown: it is read and written again."""

    async def scenario():
        candidates = LeaseCandidates()
        frontend = ServerFrontend(candidates.server)
        elector = candidates.candidate("first", frontend)
        task = candidates.lead(elector, "first")
        await asyncio.sleep(60)
        frontend.faults.add(
            RequestFault(matches=matching("PATCH", "leases"), times=2, **{drop: True})
        )
        await asyncio.sleep(60)
        assert candidates.history == [("first", "leads", 0)]
        await end(task)

    run_virtual(scenario())


def test_a_hanging_server_is_not_waited_for_beyond_the_deadline():
    """One renewal that never ends stops the work in time."""

    async def scenario():
        candidates = LeaseCandidates()
        frontend = ServerFrontend(candidates.server)
        task = candidates.lead(candidates.candidate("first", frontend), "first")
        await asyncio.sleep(60)
        frontend.faults.add(
            RequestFault(matches=matching(path="leases"), times=None, latency_seconds=3600)
        )
        await asyncio.sleep(11)
        assert candidates.history[-1][:2] == ("first", "stopped")
        assert candidates.history[-1][2] <= 70
        await asyncio.wait({task})

    run_virtual(scenario())


def test_a_renewal_that_hangs_leaves_time_for_another():
    """A connection that a load balancer has forgotten; the next request goes over a new one."""

    async def scenario():
        candidates = LeaseCandidates()
        frontend = ServerFrontend(candidates.server)
        task = candidates.lead(candidates.candidate("first", frontend), "first")
        await asyncio.sleep(60)
        for _ in range(5):
            frontend.faults.add(
                RequestFault(matches=matching("PATCH", "leases"), is_unanswered=True)
            )
            await asyncio.sleep(60)
        assert candidates.history == [("first", "leads", 0)]
        await end(task)

    run_virtual(scenario())


@pytest.mark.parametrize("seconds", [3.0, 9.0])
def test_the_fence_counts_from_the_sending_of_a_renewal(seconds):
    """However long the answer took: to the others the lease is as old as the request."""

    async def scenario():
        candidates = LeaseCandidates()
        slow = SlowAnswers(DirectTransport(ServerFrontend(candidates.server)))
        slow.seconds = seconds
        elector = candidates.candidate("first", transport=slow)
        await elector.acquire()
        assert candidates.clock.monotonic() == pytest.approx(seconds)
        assert elector.fence.seconds_left == pytest.approx(10 - seconds)

    run_virtual(scenario())


def test_the_fence_counts_from_the_second_sending_after_a_conflict():
    """Another client wrote the lease meanwhile: the refused write renewed nothing."""

    async def scenario():
        candidates = LeaseCandidates()
        slow = SlowAnswers(DirectTransport(ServerFrontend(candidates.server)))
        elector = candidates.candidate("first", transport=slow)
        await elector.acquire()
        labels = {"metadata": {"labels": {"touched": "yes"}}}
        candidates.server.registry.patch(
            resources.LEASES, labels, "karpenter-leader-election", "kube-system"
        )
        slow.seconds = 4.0
        await elector.acquire()
        assert candidates.clock.monotonic() == pytest.approx(8), "two writes, one refused"
        assert elector.fence.seconds_left == pytest.approx(6)

    run_virtual(scenario())


@pytest.mark.parametrize("seconds", [4.0, 7.0, 9.5])
def test_a_leader_with_slow_answers_stops_before_the_next_one_leads(seconds):
    """Its last renewal arrives, its answer comes late, and then nothing more is heard of it."""

    async def scenario():
        candidates = LeaseCandidates()
        frontend = ServerFrontend(candidates.server)
        slow = SlowAnswers(DirectTransport(frontend))
        first, second = (
            candidates.candidate("first", transport=slow),
            candidates.candidate("second"),
        )
        tasks = candidates.lead(first, "first"), candidates.lead(second, "second")
        await asyncio.sleep(60.5)
        slow.seconds = seconds
        before = candidates.lease["spec"]["renewTime"]
        assert await until(
            lambda: candidates.lease["spec"]["renewTime"] != before,
            every_seconds=0.1,
            within_seconds=10,
        )
        sent = candidates.clock.monotonic()
        frontend.stop()
        await asyncio.sleep(40)
        (who, what, stopped), (other, leads, took_over) = candidates.history[1:]
        assert (who, what, other, leads) == ("first", "stopped", "second", "leads")
        assert stopped <= sent + 10 < sent + 15 - 0.1 <= took_over
        await end(*tasks)

    run_virtual(scenario())


def test_a_deleted_lease_is_created_again():
    """By the one who holds it."""

    async def scenario():
        candidates = LeaseCandidates()
        task = candidates.lead(candidates.candidate("first"), "first")
        await asyncio.sleep(60)
        candidates.server.registry.delete(
            resources.LEASES, "karpenter-leader-election", "kube-system"
        )
        await asyncio.sleep(30)
        assert candidates.lease["spec"]["holderIdentity"] == "first"
        assert candidates.history == [("first", "leads", 0)]
        await end(task)

    run_virtual(scenario())


def test_a_lease_taken_by_another_ends_the_work():
    """For every reason: two must not lead."""

    async def scenario():
        candidates = LeaseCandidates()
        elector = candidates.candidate("first")
        task = candidates.lead(elector, "first")
        await asyncio.sleep(60)
        usurp = {"spec": {"holderIdentity": "usurper"}}
        candidates.server.registry.patch(
            resources.LEASES, usurp, "karpenter-leader-election", "kube-system"
        )
        await asyncio.sleep(3)
        assert candidates.history[-1][:2] == ("first", "stopped")
        with pytest.raises(FencedError, match='taken over by "usurper"'):
            await task
        assert candidates.lease["spec"]["holderIdentity"] == "usurper"

    run_virtual(scenario())


def test_work_that_ends_releases_the_lease():
    """And its own error is what the caller sees."""

    async def scenario():
        candidates = LeaseCandidates()

        async def broken():
            raise RuntimeError("boom")

        with pytest.raises(RuntimeError, match="boom"):
            await candidates.candidate("first").lead(broken)
        assert candidates.lease["spec"]["holderIdentity"] == ""

    run_virtual(scenario())


class StoppableClock:
    """A clock whose time jumps, as it does for a process that was stopped."""

    def __init__(self):
        self.time = 100.0

    def monotonic(self):
        return self.time


def test_a_stopped_process_is_fenced_the_moment_it_wakes():
    """No task has run yet: the clock alone decides."""
    clock = StoppableClock()
    fence = LeaseFence(clock)
    fence.open_until(clock.time + 10)
    fence.check()
    clock.time += 9.9
    fence.check()
    clock.time += 20.1
    with pytest.raises(FencedError, match=r"20\.0 s too late"):
        fence.check()
    assert fence.seconds_left < 0


class LateClock(LoopClock):
    """A clock of a process that stands still once, at the end of a sleep."""

    stands_still_seconds = 0.0
    _stood = 0.0

    def monotonic(self):
        return super().monotonic() + self._stood

    async def sleep(self, seconds):
        await super().sleep(seconds)
        self._stood += self.stands_still_seconds
        self.stands_still_seconds = 0.0


@pytest.mark.parametrize(("seconds", "reported"), [(0.5, []), (3.0, [3.0]), (9.0, [9.0])])
def test_a_process_that_stood_still_is_reported(seconds, reported):
    """Whether or not it loses the lease by it: this is the cause that a user looks for."""

    async def scenario():
        candidates = LeaseCandidates()
        candidates.clock = LateClock()
        task = candidates.lead(candidates.candidate("first"), "first")
        await asyncio.sleep(60)
        with capture_logs() as lines:
            candidates.clock.stands_still_seconds = seconds
            await asyncio.sleep(60)
        assert candidates.history[-1][1] == ("stopped" if seconds > 8 else "leads")
        assert [line["late_seconds"] for line in lines if "late_seconds" in line] == reported
        assert all(line["cpu_seconds"] >= 0 for line in lines if "late_seconds" in line)
        task.cancel()
        await asyncio.wait({task})

    run_virtual(scenario())


def test_without_election_everything_passes():
    """One process, no lease."""
    AlwaysLeaderFence().check()


def test_election_times_must_be_ordered():
    """Lease longer than the deadline, the deadline longer than a retry."""
    with pytest.raises(ValueError, match="15"):
        ElectionTimes(renew_deadline_seconds=15)
    with pytest.raises(ValueError, match="renew deadline"):
        ElectionTimes(retry_seconds=9)


def test_every_process_has_an_identity_of_its_own():
    """The name of the pod or of the host, and something unique."""
    assert default_identity("karpenter-7c9-x").startswith("karpenter-7c9-x_")
    first, second = default_identity(), default_identity()
    assert first != second
    assert first.partition("_")[0] == second.partition("_")[0] != ""


ODD_ANSWERS = [
    b"<html>sign in</html>",
    b"",
    b"[]",
    b"{}",
    b'{"metadata":{"resourceVersion":7}}',
    b'{"metadata":{"resourceVersion":"7"},"spec":{"leaseDurationSeconds":"soon"}}',
]


@pytest.mark.parametrize("body", ODD_ANSWERS)
def test_an_answer_that_is_no_lease_counts_as_none(body):
    """A proxy's page must end neither a leader in its time nor a standby."""

    async def scenario():
        candidates = LeaseCandidates()
        frontends = ServerFrontend(candidates.server), ServerFrontend(candidates.server)
        odd = [OddAnswers(DirectTransport(frontend), body) for frontend in frontends]
        first = candidates.candidate("first", transport=odd[0])
        second = candidates.candidate("second", transport=odd[1])
        tasks = [candidates.lead(first, "first")]
        await asyncio.sleep(3)
        tasks.append(candidates.lead(second, "second"))
        await asyncio.sleep(3)
        odd[0].is_odd = odd[1].is_odd = True
        await asyncio.sleep(4)
        odd[0].is_odd = False
        await asyncio.sleep(60)
        assert not any(task.done() for task in tasks)
        odd[1].is_odd = False
        await asyncio.sleep(60)
        assert candidates.history == [("first", "leads", 0)]
        await end(tasks[0])
        await asyncio.sleep(30)
        assert [who for who, what, _ in candidates.history if what == "leads"] == [
            "first",
            "second",
        ]
        await end(tasks[1])

    run_virtual(scenario())


class OddAnswers:
    """A connection on which a proxy may answer in the API server's place."""

    def __init__(self, transport, body):
        self._transport = transport
        self._body = body
        self.is_odd = False

    async def request(self, request):
        if self.is_odd:
            return ApiResponse(status=200, body=self._body)
        return await self._transport.request(request)
