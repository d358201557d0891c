"""Faults of cloud, API server and clock for random histories of a cluster."""

from __future__ import annotations

import contextlib
import heapq
import json
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import count
from unittest.mock import patch

from karpenter_core.kube.resources import NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_provider_kwok.active_faults import ActiveFaults
from karpenter_provider_kwok.cloud import KwokCloud
from karpenter_provider_kwok.registrar import NodeRegistrar

FROZEN_SECONDS = (120, 3600)
CATCH_UP_SECONDS = 300.0
"""Time for which the controller's state may be old after a frozen watch."""
LOST_SHARE = 0.02
"""Of all replies, where a history loses some all the time."""
CLOUD_FAULTS = 4
"""Largest number of simultaneous faults of the cloud."""
PLURALS = (
    "pods", "pods", "nodes", "nodes", "nodeclaims", "nodeclaims", "nodepools",
    "poddisruptionbudgets", "kwoknodeclasses", "daemonsets", "volumeattachments", "",
)  # fmt: skip
"""Kinds whose watch is frozen; the empty name freezes all."""
STARTUP_TAINT = {"key": "example.com/agent", "effect": "NoSchedule"}
CLOCK_MINUTES = [3, 20, 90, 300, -3, -20, -90, -300]
"""The most that the clock of the controller's host may be ahead."""
ZONES = [f"test-zone-{letter}" for letter in "abc"]


class ControllerClock:
    """A clock whose wall time is set; its monotonic time goes on."""

    def __init__(self, clock):
        self._clock = clock
        self.lead = timedelta()

    def now(self):
        return self._clock.now() + self.lead

    def monotonic(self):
        return self._clock.monotonic()

    async def sleep(self, seconds):
        await self._clock.sleep(seconds)

    def call_later(self, seconds, callback):
        return self._clock.call_later(seconds, callback)


class InjectedFaults:
    """Faults of one cluster; each method causes one."""

    def __init__(self, scene, folder, rng, *, clock, watch):
        self.scene, self.cluster = scene, scene.cluster
        self.rng, self.folder = rng, folder
        self.clock, self.watch = clock, watch
        self.loses_replies = False
        """Whether a share of all replies is lost until the faults end."""
        self.is_agent_away = False
        """Whether startup taints stay where they are."""
        self._losing = random.Random(rng.random())
        self._cloud_faults = []
        self._later = []
        self._number = count()
        self._blind_until = 0.0

    def begin(self):
        """Have some histories lose replies, or the controller's clock be wrong, all the time."""
        if self.rng.random() < 0.25:
            self.loses_replies = True
            self.cluster.frontend.faults.add(
                RequestFault(matches=self._is_lost_write, drop_reply=True, times=None)
            )

        if self.rng.random() < 0.15:
            self.clock.lead = timedelta(minutes=self.rng.choice(CLOCK_MINUTES))

    def loses_reply(self):
        """Return whether the next reply is lost."""
        return self.loses_replies and self._losing.random() < LOST_SHARE

    def _is_lost_write(self, request):
        return request.method != "GET" and self.loses_reply()

    @property
    def is_blind(self):
        """Whether the controller may not see what changes."""
        return self.cluster.clock.monotonic() < self._blind_until

    def advance(self):
        """Do what is due by now; startup taints are taken off, if there is who does it."""
        now = self.cluster.clock.monotonic()
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[-1]()
        if not self.is_blind:
            self.watch.blind_since = None
        if not self.is_agent_away:
            self._start_up()

    def ease(self):
        """Take all of it away."""
        self.loses_replies = self.is_agent_away = False
        self.cluster.frontend.faults.clear()
        self._later.clear()
        self._blind_until = min(
            self._blind_until, self.cluster.clock.monotonic() + CATCH_UP_SECONDS
        )
        self._put([])
        self.clock.lead = timedelta()

    def _after(self, seconds, act):
        due = self.cluster.clock.monotonic() + seconds
        heapq.heappush(self._later, (due, next(self._number), act))

    # -- the cloud ---------------------------------------------------------------------------------

    def break_cloud(self):
        rng = self.rng
        operation = rng.choice(["launch", "launch", "terminate", "fetch", "list"])
        times = rng.randint(1, 5)
        fault = rng.choice(
            [
                {"fault": "stock-out", "count": times},
                {"fault": "stock-out", "zones": [rng.choice(ZONES)]},
                {"fault": "stock-out", "capacityTypes": ["spot"], "count": 3 * times},
                {"fault": "throttle", "operation": operation, "count": times, "retryAfter": "5s"},
                {"fault": "slow-reply", "operation": operation, "count": 1, "delay": "4m"},
                {"fault": "slow-call", "operation": operation, "count": times, "delay": "45s"},
                {"fault": "lost-reply", "operation": operation, "count": times},
                {"fault": "failed-node", "count": times},
                {"fault": "unready-node", "count": times},
                {"fault": "missing-resource", "resources": ["memory"], "count": times},
                {"fault": "partial-listing", "count": times},
                {"fault": "slow-node", "count": times, "delay": rng.choice(["1m", "7m", "20m"])},
            ]
        )
        self._put([*self._cloud_faults, fault])

    def cut_quota(self):
        """Let no more be had of some types or of a zone, until the quota moves."""
        where = self.rng.choice(
            [
                {"instanceTypes": [f"{self.rng.choice(['std1', 'cpu1', 'mem1'])}.*"]},
                {"instanceTypes": [f"*.{self.rng.choice(['large', 'xlarge', '2xlarge'])}"]},
                {"zones": [self.rng.choice(ZONES)]},
                {"zones": self.rng.sample(ZONES, 2), "capacityTypes": ["spot"]},
            ]
        )
        self._put_for(self.rng.randint(60, 3600), {"fault": "quota", **where})

    def move_prices(self):
        where = self.rng.choice(
            [
                {"capacityTypes": ["spot"]},
                {"zones": [self.rng.choice(ZONES)]},
                {"instanceTypes": [f"{self.rng.choice(['std1', 'cpu1', 'mem1'])}.*"]},
            ]
        )
        fault = {"fault": "price", "percent": self.rng.choice([30, 80, 130, 400]), **where}
        self._put_for(self.rng.randint(600, 7200), fault)

    def keep_token_in_progress(self):
        """Lose the reply of a launch, and refuse its token while the instance is unknown."""
        times = self.rng.randint(1, 6)
        self._put(
            [
                *self._cloud_faults,
                {"fault": "lost-reply", "operation": "launch", "count": self.rng.randint(1, 2)},
                {"fault": "token-in-progress", "count": times},
            ]
        )

    def lose_launches(self):
        """Lose the replies of the next launches, which are carried out."""
        fault = {"fault": "lost-reply", "operation": "launch", "count": self.rng.randint(1, 4)}
        self._put([*self._cloud_faults, fault])

    def protect_instance(self):
        """Refuse terminations of an instance for a while."""
        for name in self.some(NODE_CLAIMS, 2):
            fault = {"fault": "protected", "nodeClaims": [name]}
            self._put_for(self.rng.randint(60, 3600), fault)

    def lose(self):
        """The cloud loses instances without a message."""
        for name in self.some(NODE_CLAIMS, 2):
            self.watch.excuse(f"kwok://{name}")
            self._change_instances(
                "UPDATE instances SET gone_at = ? WHERE provider_id = ?",
                self.cluster.clock.now().timestamp(),
                f"kwok://{name}",
            )

    def reclaim(self):
        for name in self.some(NODE_CLAIMS, 2):
            self.watch.excuse(f"kwok://{name}")
            notice = self.rng.choice(["30s", "2m"])
            fault = {"fault": "reclaim", "nodeClaims": [name], "count": 1, "notice": notice}
            self._put([*self._cloud_faults, fault])

    def tag(self):
        """Other clients label Nodes and tag instances."""
        owner = self.rng.choice(["finance", "research"])
        for name in self.some(NODES, 3):
            marks = {"labels": {"example.com/owner": owner}, "annotations": {"example.com/n": "1"}}
            self.cluster.patch(NODES, name, {"metadata": marks})
        for name in self.some(NODE_CLAIMS, 3):
            self._change_instances(
                "UPDATE instances SET answer = json_set(answer, '$.labels.owner', ?) "
                "WHERE provider_id = ?",
                owner,
                f"kwok://{name}",
            )

    def _put_for(self, seconds, fault):
        self._put([*self._cloud_faults, fault])
        self._after(seconds, lambda: self._put([f for f in self._cloud_faults if f is not fault]))

    def _put(self, faults):
        self._cloud_faults = faults[-CLOUD_FAULTS:]
        (self.folder / "faults.json").write_text(json.dumps(self._cloud_faults))

    def _change_instances(self, statement, *values):
        with closing(sqlite3.connect(self.folder / "kwok.sqlite3")) as instances, instances:
            instances.execute(statement, values)

    # -- the API server ----------------------------------------------------------------------------

    def break_api(self):
        rng = self.rng
        method = rng.choice(["PATCH", "POST", "DELETE", "", "PATCH"])
        path = rng.choice(["nodeclaims", "nodes", "nodepools", "eviction", ""])
        how = rng.choice(
            [
                {"status": 409},
                {"status": 429, "retry_after_seconds": 2},
                {"status": 500},
                {"status": 503},
                {"drop_request": True},
                {"drop_request": True, "latency_seconds": 20.0},
                {"drop_reply": True},
                {"latency_seconds": 5.0},
            ]
        )
        self.cluster.frontend.faults.add(
            RequestFault(
                matches=matching(method, path, watch=False),
                times=rng.randint(1, 12),
                after=rng.randint(0, 6),
                **how,
            )
        )

    def freeze(self):
        """Show no changes of one kind, or of all, for minutes up to an hour."""
        plural = self.rng.choice(PLURALS)
        how = self.rng.choice(["forbidden", "silent", "no headers", "no answer"])
        least, most = FROZEN_SECONDS
        seconds = least * (most / least) ** self.rng.random()
        faults = self.cluster.frontend.faults

        def reads(request):
            return (
                request.method == "GET"
                and "/leases" not in request.path
                and request.path.endswith(plural and f"/{plural}")
            )

        def watches(request):
            return reads(request) and "watch" in request.query

        fault = {
            "forbidden": RequestFault(matches=reads, status=403, times=None),
            "silent": RequestFault(matches=watches, is_silent=True, times=None),
            "no headers": RequestFault(matches=watches, is_unanswered=True, times=None),
            "no answer": RequestFault(matches=reads, is_unanswered=True, times=None),
        }[how]
        if how != "silent":  # what is open is cut, and does not come back
            self.cluster.frontend.stop()
            self.cluster.frontend.start()
        faults.add(fault)
        self._after(seconds, lambda: faults.remove(fault))
        now = self.cluster.clock.monotonic()
        self._blind_until = max(self._blind_until, now + seconds + CATCH_UP_SECONDS)
        self.watch.blind_since = self.watch.blind_since or self.cluster.clock.now()
        return f"{plural or 'everything'}: {how} for {seconds:.0f} s"

    async def restart_api(self):
        await self.cluster.restart_server(down_seconds=self.rng.choice([1, 30, 120]))

    # -- clock and nodes ---------------------------------------------------------------------------

    def set_clock(self):
        """Set the wall clock of the controller's host; it is corrected later."""
        minutes, before = self.rng.choice(CLOCK_MINUTES), self.clock.lead
        self.clock.lead = timedelta(minutes=minutes)

        def put_right():
            self.clock.lead = before

        self._after(self.rng.randint(30, 2400), put_right)
        return f"{minutes} min"

    def send_agent_away(self):
        """Leave startup taints on new Nodes for a while."""
        self.is_agent_away = True

        def come_back():
            self.is_agent_away = False

        self._after(self.rng.randint(60, 2400), come_back)

    def _start_up(self):
        for node in self.scene.nodes():
            taints = node["spec"].get("taints") or []
            others = [taint for taint in taints if taint["key"] != STARTUP_TAINT["key"]]
            if len(others) < len(taints):
                self.cluster.patch(
                    NODES, node["metadata"]["name"], {"spec": {"taints": others or None}}
                )

    # -- choice ------------------------------------------------------------------------------------

    def some(self, kind, most):
        """Draw the names of some objects of a kind, one at least if there are any."""
        names = sorted(each["metadata"]["name"] for each in self.cluster.list(kind))
        return self.rng.sample(names, min(len(names), self.rng.randint(1, most)))


@contextlib.contextmanager
def faulty_cloud(injected_faults):
    """Give kwok's cloud the cluster's time, and have it lose replies where the history does.

    A cloud does not follow the clock of the controller's host.
    """
    clock = injected_faults.cluster.clock
    begin, disturb = KwokCloud.__init__, ActiveFaults.disturb

    def cloud_init(self, store, *, now, **options):
        begin(self, store, now=clock.now, **options)

    def disturbed(self, operation):
        result = disturb(self, operation)
        return replace(result, reply_lost=True) if injected_faults.loses_reply() else result

    with (
        patch.object(KwokCloud, "__init__", cloud_init),
        patch.object(ActiveFaults, "disturb", disturbed),
        patch.object(NodeRegistrar, "_now", lambda _self: clock.now().timestamp()),
    ):
        yield
