"""Plays random histories of a cluster, checked at every change.

A seed decides everything: which pools there are, static ones, buffers, requests for gangs and
commitments among them, what users do to workloads, budgets, pools, their windows of time, claims and
Nodes, what the cloud and the API server do wrong, and when the controller dies. Afterwards all faults
are ended; then the cluster has to come to rest with every pod running, and to shrink to nothing once
the pods have gone.

    .venv/bin/python -m tests.controllers.histories --count 100 --seed 0 --jobs 2
    .venv/bin/python -m tests.controllers.histories --count 1 --seed 17 --verbose
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import multiprocessing
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import structlog

from karpenter_core.api.crd import render_crd
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.provisioning_request import (
    ATOMIC_SCALE_UP,
    CHECK_CAPACITY,
    CONSUMED_REQUEST,
    ProvisioningRequest,
)
from karpenter_core.kube.resources import DEPLOYMENTS, NODES, POD_DISRUPTION_BUDGETS, PODS
from karpenter_core.kube.wire.codecs import (
    CAPACITY_BUFFERS,
    NODE_CLAIMS,
    NODE_POOLS,
    PROVISIONING_REQUESTS,
)
from karpenter_core.testing.expectations import CloudAccount
from tests.controllers.cluster_runs import watch_invariants
from tests.controllers.gangs import consumer, request, template
from tests.controllers.injected_faults import (
    STARTUP_TAINT,
    ControllerClock,
    InjectedFaults,
    faulty_cloud,
)
from tests.controllers.test_capacity_buffers import buffer, pod_template
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller
from tests.support.drawn_doings import do_one
from tests.support.invariants import (
    buffer_violations,
    quiet_violations,
    replicas_violations,
    request_violations,
)

ACTIONS = (15, 40)
LONGEST_PAUSE_SECONDS = 1200.0
LOOK_SECONDS = 30.0
REST_SECONDS = 4 * 3600.0
"""Time limit for a cluster without faults to converge: longer than any back-off."""
CPU_SECONDS = 150.0
"""Time limit for the computation of a history: many times the longest one."""
STILLBORN_SECONDS = 1800.0
"""Time until a user ends a node that registered and never got ready."""
TOLERANCE_SECONDS = 1200.0
"""Time limit for mismatched instances, claims and Nodes: two rounds of garbage collection, and more."""
STATIC = "fixed"
"""The name of the static pool."""
LIVE = "SELECT provider_id FROM instances WHERE gone_at IS NULL OR gone_at > ? ORDER BY launched_at"
LAUNCHES = (
    "SELECT subject, count(*) FROM calls WHERE operation = 'launch' AND result = 'launched' "
    "GROUP BY subject"
)
JUDGEMENT_FAILED_TEXT = "object skipped, the decision about it failed"
COLLECTED_AT = (400_000, 50, 50)
"""Thresholds of garbage collection: the defaults spend a tenth of the time on objects that stay."""


class Errors:
    """Keeps what the process did not expect, apart from what it says about the world."""

    def __init__(self, *, verbose):
        self.found = []
        self._verbose = verbose
        self._shown = structlog.dev.ConsoleRenderer(colors=False)

    def __call__(self, logger, method, event):
        if event.get("exc_info"):
            self.found.append(f"{event['event']}: {event['exc_info']!r}")
        if event["event"] == JUDGEMENT_FAILED_TEXT:
            self.found.append(f"{event['step']}: {event['error']}")
        if self._verbose and method != "debug":
            print(self._shown(logger, method, dict(event)))  # noqa: T201
        raise structlog.DropEvent

    def note_unhandled(self, _loop, context):
        """Note an error that reached nobody but the event loop."""
        self.found.append(f"{context['message']}: {context.get('exception')!r}")


class History:
    """One cluster, and what happens to it."""

    look_seconds = LOOK_SECONDS

    def __init__(self, scene, folder, seed, *, clock, watch, verbose=False):
        """`clock` is the controller's, `watch` checks every change."""
        self.scene, self.cluster, self.clock = scene, scene.cluster, scene.cluster.clock
        self.rng = random.Random(seed)
        self._apart_rng = random.Random(f"requests and commitments of {seed}")
        """For what most histories have not, so that those are what they were without it."""
        self._serves_requests = self._apart_rng.random() < 0.3
        self.folder = folder
        self.watch = watch
        self.injected_faults = InjectedFaults(scene, folder, self.rng, clock=clock, watch=watch)
        self.running = None
        self.events_counted = []
        self._verbose = verbose
        self._apart = {}
        self._stillborn = {}
        self._looked = self.clock.monotonic()
        self._made = 0
        self._cloud = None

    # -- what is there at first --------------------------------------------------------------------

    def begin(self):
        rng = self.rng
        self.cluster.apply([NODE_CLASS])
        for name in ("general", "spare", "batch")[: rng.choice([1, 1, 2, 3])]:
            self.cluster.apply([self._pool(name)])
        for _ in range(rng.randint(1, 4)):
            self.deploy()
        gates = rng.choice([[], ["SpotToSpotConsolidation=true"]])
        if rng.random() < 0.5:
            gates.append("StaticCapacity=true")
            self.cluster.apply([self._static_pool()])
        if rng.random() < 0.4:
            gates.append("CapacityBuffer=true")
            self._add_buffer()
        self.arguments = [
            *rng.choice([[], ["--disable-leader-election"]]),
            *([f"--feature-gates={','.join(gates)}"] if gates else []),
            *self._add_requests(),
            *self._commitments(),
            f"--kwok-launch-latency={rng.choice(['0s', '0s', '2s', '40s'])}",
            f"--kwok-registration-delay={rng.choice(['0s', '5s', '90s'])}",
            f"--kwok-termination-delay={rng.choice(['0s', '0s', '30s'])}",
        ]
        self.injected_faults.begin()
        self.start()

    def _pool(self, name):
        rng = self.rng
        template = {
            "requirements": [
                {
                    "key": "karpenter.sh/capacity-type",
                    "operator": "In",
                    "values": rng.choice([["on-demand"], ["spot"], ["on-demand", "spot"]]),
                },
                {
                    "key": "karpenter.kwok.sh/instance-cpu",
                    "operator": "In",
                    "values": rng.choice([["4"], ["4", "8"], ["2", "4", "8", "16"]]),
                },
            ]
        }
        if rng.random() < 0.2:
            template["expireAfter"] = rng.choice(["40m", "2h"])
        if rng.random() < 0.3:
            template["terminationGracePeriod"] = rng.choice(["1m", "10m"])
        if rng.random() < 0.15:
            template["startupTaints"] = [STARTUP_TAINT]
        limits = {"cpu": str(rng.choice([24, 48, 96]))} if rng.random() < 0.4 else {}
        return node_pool(
            name,
            template=template,
            weight=rng.randint(1, 100),
            disruption=self._disruption(),
            **({"limits": limits} if limits else {}),
        )

    def _static_pool(self):
        replicas = self.rng.randint(0, 4)
        limits = {"limits": {"nodes": replicas + 1}} if self.rng.random() < 0.3 else {}
        return node_pool(
            STATIC,
            replicas=replicas,
            template={
                "requirements": [
                    {
                        "key": "karpenter.kwok.sh/instance-cpu",
                        "operator": "In",
                        "values": ["2", "4"],
                    }
                ]
            },
            disruption=self._disruption(),
            **limits,
        )

    def _add_buffer(self):
        rng = self.rng
        template = pod_template(cpu=rng.choice(["500m", "1", "2"]))
        spec = {"podTemplateRef": {"name": "chunk"}, "replicas": rng.randint(1, 4)}
        self.cluster.apply([template, buffer("headroom", **spec)])

    def _add_requests(self):
        if not self._serves_requests:
            return []
        cpu = self._apart_rng.choice(["500m", "1", "3"])
        self.cluster.apply([render_crd(ProvisioningRequest), template(cpu=cpu), template("others")])
        return ["--provisioning-requests"]

    def _commitments(self):
        rng = self._apart_rng
        if rng.random() >= 0.25:
            return []
        row = {
            "name": "paid",
            "requirements": [
                {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["8"]}
            ],
            **rng.choice(
                [
                    {"resource": "cpu", "amount": rng.choice([8, 20, 64]), "price": 0},
                    {"resource": "nodes", "amount": rng.randint(1, 3), "price": 0.01},
                    {"resource": "spend", "amount": 0.5, "discount": "30%"},
                ]
            ),
        }
        return [f"--commitments={json.dumps([row])}"]

    def _disruption(self):
        rng = self.rng
        return {
            "consolidationPolicy": rng.choice(
                ["WhenEmpty", "WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized"]
            ),
            "consolidateAfter": rng.choice(["0s", "30s", "5m", "Never"]),
            "budgets": self._budgets(),
        }

    def _budgets(self):
        budgets = [{"nodes": self.rng.choice(["1", "2", "30%", "100%", "100%"])}]
        if self.rng.random() < 0.2:
            budgets.append({"nodes": "0", "reasons": [self.rng.choice(["Drifted", "Empty"])]})
        return budgets

    # -- what users do -----------------------------------------------------------------------------

    def deploy(self):
        rng = self.rng
        self._made += 1
        name = f"app{self._made}"
        pod = {"terminationGracePeriodSeconds": rng.choice([0, 5, 30, 120])}
        if rng.random() < 0.2:
            key = rng.choice(["kubernetes.io/hostname", "topology.kubernetes.io/zone"])
            pod["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": key,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": name}},
                }
            ]
        manifest = deployment(
            name,
            rng.choice([0, 1, 2, 3, 5, 8]),
            cpu=rng.choice(["100m", "500m", "1", "1500m", "2"]),
            memory=rng.choice(["128Mi", "1Gi", "3Gi"]),
            **pod,
        )
        if rng.random() < 0.1:
            metadata = manifest["spec"]["template"]["metadata"]
            metadata["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
        self.cluster.apply([manifest])

    def scale(self):
        for name in self.injected_faults.some(DEPLOYMENTS, 2):
            self.cluster.scale(DEPLOYMENTS, name, self.rng.choice([0, 1, 2, 4, 7, 10]))

    def protect(self):
        for name in self.injected_faults.some(DEPLOYMENTS, 1):
            much = self.rng.choice(
                [
                    {"minAvailable": 1},
                    {"maxUnavailable": 1},
                    {"maxUnavailable": "30%"},
                    {"maxUnavailable": 0},
                ]
            )
            with contextlib.suppress(Exception):  # it has one
                self.cluster.delete(POD_DISRUPTION_BUDGETS, name, namespace="default")
            self.cluster.apply(
                [
                    {
                        "apiVersion": "policy/v1",
                        "kind": "PodDisruptionBudget",
                        "metadata": {"name": name, "namespace": "default"},
                        "spec": {"selector": {"matchLabels": {"app": name}}, **much},
                    }
                ]
            )

    def unprotect(self):
        for name in self.injected_faults.some(POD_DISRUPTION_BUDGETS, 2):
            self.cluster.delete(POD_DISRUPTION_BUDGETS, name, namespace="default")

    def relabel(self):
        """Edit a template, so that the nodes of the pool drift."""
        labels = {"example.com/edition": str(self.rng.randint(1, 9))}
        for name in self.injected_faults.some(NODE_POOLS, 1):
            self._edit(name, {"template": {"metadata": {"labels": labels}}})

    def rebudget(self):
        for name in self.injected_faults.some(NODE_POOLS, 1):
            self._edit(name, {"disruption": self._disruption()})

    def limit(self):
        cpu = self.rng.choice([None, "8", "16", "48"])
        for name in self.injected_faults.some(NODE_POOLS, 1):
            if name != STATIC:
                self._edit(name, {"limits": {"cpu": cpu}})

    def schedule(self):
        """Give a pool one or two windows that open soon; now and then one that cannot be read."""
        for name in self.injected_faults.some(NODE_POOLS, 1):
            rows = [
                self._window(name, f"window-{number}") for number in range(self.rng.randint(1, 2))
            ]
            text = "[" if self.rng.random() < 0.1 else json.dumps(rows)
            self._annotate(name, text)

    def unschedule(self):
        for name in self.injected_faults.some(NODE_POOLS, 2):
            self._annotate(name, None)

    def _window(self, pool, name):
        rng = self.rng
        start = self.clock.now() + timedelta(minutes=rng.choice([-10, 1, 5, 20, 60]))
        effects = [{"shutdown": True}]
        if pool == STATIC:
            effects += [{"replicas": rng.randint(0, 5)}, {"limits": {"nodes": rng.randint(0, 5)}}]
        else:
            effects += [
                {"limits": {"cpu": rng.choice([4, 16, 64])}},
                {"limits": {"nodes": rng.randint(0, 4)}, "consolidationPolicy": "WhenEmpty"},
                {"consolidateAfter": rng.choice(["0s", "5m", "Never"])},
            ]
        return {
            "name": name,
            "schedule": f"{start.minute} {start.hour} {start.day} {start.month} *",
            "duration": f"{rng.choice([5, 20, 90])}m",
            **rng.choice(effects),
        }

    def _annotate(self, name, text):
        metadata = {"annotations": {"karpenter.sh/schedules": text}}
        self.cluster.patch(NODE_POOLS, name, {"metadata": metadata})

    def resize(self):
        """Scale the static pool and the buffer."""
        if STATIC in self._names(NODE_POOLS):
            self._edit(STATIC, {"replicas": self.rng.randint(0, 4)})
        for name in self._names(CAPACITY_BUFFERS):
            body = {"spec": {"replicas": self.rng.randint(0, 4)}}
            self.cluster.patch(CAPACITY_BUFFERS, name, body, namespace="default")

    def ask(self):
        """Ask for the room of a gang."""
        rng = self._apart_rng
        self._made += 1
        provisioning_class = rng.choice([ATOMIC_SCALE_UP, ATOMIC_SCALE_UP, CHECK_CAPACITY])
        choices = {
            ATOMIC_SCALE_UP: [{}, {"ValidUntilSeconds": rng.choice(["60", "900"])}],
            CHECK_CAPACITY: [
                {},
                {"noRetry": "true"},
                {"partialCapacityCheck": rng.choice(["bookPartial", "checkOnly"])},
            ],
        }
        pod_sets = [(name, rng.randint(1, 6)) for name in ("workers", "others")]
        asked = request(
            f"job{self._made}",
            *pod_sets[: rng.randint(1, 2)],
            provisioning_class=provisioning_class,
            **rng.choice(choices[provisioning_class]),
        )
        self.cluster.apply([asked])

    def consume(self):
        """Create pods that use the room of a request."""
        for job in self.injected_faults.some(PROVISIONING_REQUESTS, 1):
            for _ in range(self._apart_rng.randint(1, 3)):
                self._made += 1
                self.cluster.apply([consumer(f"worker{self._made}", job)])

    def withdraw(self):
        for name in self.injected_faults.some(PROVISIONING_REQUESTS, 1):
            self._withdraw(name)

    def _withdraw(self, name):
        """Delete a request and its pods, which nothing recreates."""
        self.cluster.delete(PROVISIONING_REQUESTS, name, namespace="default")
        for pod in self.cluster.list(PODS):
            annotations = pod["metadata"].get("annotations") or {}
            if annotations.get(CONSUMED_REQUEST) == name:
                self.cluster.delete(PODS, pod["metadata"]["name"], namespace="default")

    def delete_claim(self):
        for name in self.injected_faults.some(NODE_CLAIMS, 2):
            self.cluster.delete(NODE_CLAIMS, name)

    def delete_node(self):
        for name in self.injected_faults.some(NODES, 1):
            self.cluster.delete(NODES, name)

    async def delete_unanswered(self):
        """Lose the replies of launches, and delete their claims before they are asked again."""
        self.injected_faults.lose_launches()
        self.deploy()
        self.scale()
        for _ in range(60):
            await self._pass(1.0)
            if self._unanswered():
                break
        await self._pass(self.rng.choice([0.1, 1, 3]))
        for name in self._unanswered():
            self.cluster.delete(NODE_CLAIMS, name)

    def _unanswered(self):
        return [
            claim["metadata"]["name"]
            for claim in self.scene.claims()
            if not claim.get("status", {}).get("providerID")
        ]

    # -- what happens to the controller ------------------------------------------------------------

    async def kill(self):
        await self.running.kill()
        await self.clock.sleep(self.rng.choice([0.5, 5, 60]))
        self.start()

    async def restart(self):
        if self.running.is_alive:
            await self.running.stop()
        self.start()

    # -- the course of it --------------------------------------------------------------------------

    def start(self):
        self.running = self.scene.start(
            *self.arguments, faults=self.watch.note_write, clock=self.injected_faults.clock
        )

    async def unfold(self):
        """Let everything happen, end all faults, wait until the cluster converges, then until it is empty."""
        doings = self.doings()
        self.begin()
        for _ in range(self.rng.randint(*ACTIONS)):
            await self._pass(LONGEST_PAUSE_SECONDS * self.rng.random() ** 4)
            await self.act(doings)
        await self.come_to_rest()

    def doings(self):
        """Return everything that may happen, with its weight."""
        wrong = self.injected_faults
        requests = {self.ask: 4, self.consume: 3, self.withdraw: 1} if self._serves_requests else {}
        return {
            **requests,
            self.scale: 8, self.deploy: 3, self.protect: 3, self.unprotect: 2, self.relabel: 3,
            self.rebudget: 2, self.limit: 2, self.schedule: 4, self.unschedule: 1, self.resize: 2, self.delete_claim: 3, self.delete_node: 2,
            self.delete_unanswered: 2, self.kill: 4, self.restart: 1,
            wrong.break_cloud: 4, wrong.lose: 2, wrong.reclaim: 2, wrong.break_api: 6,
            wrong.restart_api: 1, wrong.freeze: 3, wrong.set_clock: 2, wrong.cut_quota: 2,
            wrong.move_prices: 2, wrong.keep_token_in_progress: 2, wrong.protect_instance: 1,
            wrong.tag: 1, wrong.send_agent_away: 1,
        }  # fmt: skip

    async def act(self, doings):
        """Let one thing happen."""
        done = await do_one(self.rng, doings, self._tell)
        if isinstance(done, str):
            self._show(done)

    async def come_to_rest(self):
        """End all faults, wait until the cluster converges, then until it is empty."""
        self._tell("faults ended")
        self.ease()
        if self._serves_requests:
            self._settle_requests()
        await self._rest(
            lambda: (
                self.scene.pods()
                and [
                    *self._request_violations(),
                    *quiet_violations(self.scene, self.account()),
                    *replicas_violations(self.scene),
                    *buffer_violations(self.scene),
                ]
            )
        )
        self._tell("pods away")
        if self._serves_requests:
            for name in self._names(PROVISIONING_REQUESTS):
                self._withdraw(name)
        for name in self._names(DEPLOYMENTS):
            self.cluster.scale(DEPLOYMENTS, name, 0)
        for name in self._names(CAPACITY_BUFFERS):
            self.cluster.delete(CAPACITY_BUFFERS, name, namespace="default")
        if STATIC in self._names(NODE_POOLS):
            self._edit(STATIC, {"replicas": 0})
        await self._rest(
            lambda: [
                f"left: {kind} {len(result)}"
                for kind, result in (
                    ("pods", self.scene.pods()),
                    ("claims", self.scene.claims()),
                    ("nodes", self.scene.nodes()),
                    ("instances", self.account().instances),
                )
                if result
            ]
        )

    def _settle_requests(self):
        """Delete the pods that wait for room which their request has not, or has no longer."""
        for name in self._names(PROVISIONING_REQUESTS):
            if self._apart_rng.random() < 0.5:
                self._withdraw(name)
        for pod in self.cluster.list(PODS):
            if CONSUMED_REQUEST in (pod["metadata"].get("annotations") or {}):
                self.cluster.delete(PODS, pod["metadata"]["name"], namespace="default")

    def _request_violations(self):
        return request_violations(self.scene) if self._serves_requests else []

    def ease(self):
        """Take away what may rightly keep the cluster from rest."""
        self.injected_faults.ease()
        for name in self._names(POD_DISRUPTION_BUDGETS):
            self.cluster.delete(POD_DISRUPTION_BUDGETS, name, namespace="default")
        disruption = {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": "0s",
            "budgets": [{"nodes": "100%"}],
        }
        for name in self._names(NODE_POOLS):
            self._edit(name, {"limits": None, "disruption": disruption})
            self._annotate(name, None)
        for name in self._names(DEPLOYMENTS):
            metadata = {"annotations": {"karpenter.sh/do-not-disrupt": None}}
            body = {"spec": {"template": {"metadata": metadata}}}
            self.cluster.patch(DEPLOYMENTS, name, body, namespace="default")

    async def _rest(self, wrong):
        deadline = self.clock.monotonic() + REST_SECONDS
        while missing := wrong():
            if self.clock.monotonic() > deadline:
                now = f"{self.clock.now():%H:%M:%S}"
                self.watch.breaches.extend(f"{now} no rest: {each}" for each in missing)
                return
            await self._pass(self.look_seconds)
            self._end_stillborn()

    def _end_stillborn(self):
        """Delete claims whose Nodes never become whole: only NodeRepair does it for users."""
        now = self.clock.monotonic()
        self._stillborn = {
            claim["metadata"]["name"]: self._stillborn.get(claim["metadata"]["name"], now)
            for claim in self.scene.claims()
            if any(
                each["type"] == "Initialized"
                and each["reason"] in {"NodeNotReady", "ResourceNotRegistered"}
                for each in claim.get("status", {}).get("conditions", ())
            )
        }
        for name, since in self._stillborn.items():
            if now - since > STILLBORN_SECONDS:
                self.cluster.delete(NODE_CLAIMS, name)

    async def _pass(self, seconds):
        """Let time pass, and check now and then that instances, claims and Nodes match."""
        until = self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0:
            await self.clock.sleep(min(left, self.look_seconds))
            self._look()

    def _look(self):
        self.injected_faults.advance()
        if not self.running.is_alive:
            self._tell("the process has ended by itself and is started anew")
            self.start()
        now = self.clock.monotonic()
        blind = now - self._looked if self.injected_faults.is_blind else 0.0
        self._looked = now
        self.watch.note_instances(
            self._ask(LIVE, self.clock.now().timestamp()), blind_seconds=blind
        )
        self._apart = {
            what: self._apart.get(what, now - blind) + blind for what in self._unpaired()
        }
        for what, since in self._apart.items():
            if now - since > TOLERANCE_SECONDS:
                self.watch.breaches.append(f"{self.clock.now():%H:%M:%S} for too long: {what}")
                self._apart[what] = float("inf")

    def _unpaired(self):
        claims = {
            claim["status"].get("providerID", ""): claim["metadata"]
            for claim in self.scene.claims()
            if "status" in claim
        }
        instance_ids = set(self._ask(LIVE, self.clock.now().timestamp()))
        for provider_id in sorted(claims.keys() - instance_ids - {""}):
            if "deletionTimestamp" not in claims[provider_id]:
                yield f"claim of {provider_id} without instance"
        for node in self.scene.nodes():
            metadata, spec = node["metadata"], node["spec"]
            if NODE_POOL in (metadata.get("labels") or {}):
                if spec.get("providerID") not in claims:
                    yield f"node {metadata['name']} without claim"
                is_tainted = any(
                    taint["key"] == "karpenter.sh/disrupted" for taint in spec.get("taints") or ()
                )
                if is_tainted and "deletionTimestamp" not in metadata:
                    yield f"node {metadata['name']} is marked and stays"

    def account(self):
        """Return what the cloud has, without the log of calls that a full dump reads each time."""
        instances = [{"providerID": each} for each in self._ask(LIVE, self.clock.now().timestamp())]
        return CloudAccount(instances=instances, launches=dict(self._ask(LAUNCHES)))

    def _ask(self, query, *values):
        """Return the rows of a query to the cloud's file; of one column the values alone."""
        file = self.folder / "kwok.sqlite3"
        if self._cloud is None:
            if not file.exists():  # no process has reached the cloud yet
                return []
            self._cloud = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
        rows = self._cloud.execute(query, values).fetchall()
        return [row[0] if len(row) == 1 else row for row in rows]

    def close(self):
        if self._cloud is not None:
            self._cloud.close()

    def _names(self, kind):
        return sorted(each["metadata"]["name"] for each in self.cluster.list(kind))

    def _edit(self, name, spec):
        self.cluster.patch(NODE_POOLS, name, {"spec": spec})

    def _tell(self, what):
        self.events_counted.append(what)
        self._show(what)

    def _show(self, what):
        if self._verbose:
            print(f"=== {self.clock.now():%H:%M:%S} {what}")  # noqa: T201


def breaches_of(seed, folder, *, verbose=False, events_counted=None, make=History, **cluster):
    """Live one history, made by `make`, and return what was wrong, in words."""
    errors, kept = Errors(verbose=verbose), []

    async def scenario(scene):
        asyncio.get_running_loop().set_exception_handler(errors.note_unhandled)
        clock = ControllerClock(scene.cluster.clock)
        with watch_invariants(scene) as watch:
            watch.controller_clock = clock
            history = make(scene, folder, seed, clock=clock, watch=watch, verbose=verbose)
            kept.append(history)
            with closing(history), faulty_cloud(history.injected_faults):
                await history.unfold()
                twins = [token for token, n in history.account().launches.items() if n != 1]
        history.watch.breaches.extend(f"token {token} launched again" for token in twins)

    (folder / "faults.json").write_text("[]")
    before = structlog.get_config()
    structlog.configure(
        processors=[errors], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False
    )
    try:
        run_controller(
            folder,
            scenario,
            arguments=[f"--kwok-faults-file={folder / 'faults.json'}"],
            seed=seed,
            **cluster,
        )
    finally:
        structlog.configure(**before)
    gc.collect()  # a task tells of its error when it is freed
    if events_counted is not None:
        events_counted.update(kept[0].events_counted)
    return [*kept[0].watch.breaches, *errors.found]


class HungError(KeyboardInterrupt):
    """A history does not get on; of the sort that event loops let through."""


def _hang(*_):
    raise HungError


def _live(job):
    seed, verbose = job
    gc.collect()  # what the last history left is garbage in cycles, and freezing would keep it
    gc.freeze()
    gc.set_threshold(*COLLECTED_AT)
    signal.signal(signal.SIGPROF, _hang)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    with tempfile.TemporaryDirectory(prefix=f"history-{seed}-") as folder:
        events_counted = Counter()
        try:
            wrong = breaches_of(seed, Path(folder), verbose=verbose, events_counted=events_counted)
        except HungError:
            wrong = [f"does not end: {CPU_SECONDS:.0f} s of computing have gone by"]
        except Exception as error:
            wrong = [f"ended with {error!r}"]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return seed, wrong, events_counted


def main():
    """Live many histories; the exit code is 1 when something was wrong in any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="how many histories")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--verbose", action="store_true", help="tell and log what happens")
    options = parser.parse_args()
    jobs = [(options.seed + number, options.verbose) for number in range(options.count)]
    began, failed, events_counted = time.monotonic(), [], Counter()
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for seed, wrong, happened in pool.imap_unordered(_live, jobs):
            events_counted.update(happened)
            if wrong:
                failed.append(seed)
                print(f"seed {seed}:", *wrong[:8], sep="\n  ", flush=True)  # noqa: T201
    print(  # noqa: T201
        f"{options.count} histories from seed {options.seed} in {time.monotonic() - began:.0f} s, "
        f"{len(failed)} with breaches{f': {sorted(failed)}' if failed else ''}\n"
        f"what happened: {dict(sorted(events_counted.items()))}"
    )
    if failed:
        again = f"python -m tests.controllers.histories --count 1 --verbose --seed {min(failed)}"
        print(f"replay: {again}")  # noqa: T201
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
