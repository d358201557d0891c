"""Plays clusters with many features at once, drawn by a seed, and looks for nodes bought over and over.

Nothing fails: users change workloads, pools and buffers for a while, windows of time open and close,
then all is left alone for hours. In the last of them nothing may be launched or ended, limits and
quotas hold at every moment, and without workloads nothing is left but static pools.

    .venv/bin/python -m tests.controllers.combinations --count 50 --seed 0 --jobs 2
    .venv/bin/python -m tests.controllers.combinations --count 1 --seed 17 --verbose
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import random
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import structlog

from karpenter_core.api.crd import render_crd
from karpenter_core.api.provisioning_request import (
    ATOMIC_SCALE_UP,
    CHECK_CAPACITY,
    ProvisioningRequest,
)
from karpenter_core.kube.resources import DEPLOYMENTS, PODS
from karpenter_core.kube.wire.codecs import (
    CAPACITY_BUFFERS,
    CAPACITY_QUOTAS,
    NODE_CLAIMS,
    NODE_POOLS,
    PROVISIONING_REQUESTS,
)
from tests.controllers.cluster_runs import watch_invariants
from tests.controllers.gangs import consumer, request, template
from tests.controllers.test_capacity_buffers import pod_template
from tests.controllers.test_node_overlays import one_of, overlay
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller
from tests.support.capacity_quotas import DEFINITION, capacity_quota
from tests.support.drawn_doings import do_one

STATIC = "fixed"
CPU = "karpenter.kwok.sh/instance-cpu"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
SETTLE_SECONDS = 4500.0
"""Time in which a cluster that is left alone has to converge: longer than any back-off."""
STILL_SECONDS = 3600.0
"""Time in which nothing may happen any more."""
EMPTY_SECONDS = 2400.0
FEW = 60
"""Launches that no run of these sizes needs in the time in which it converges."""


class Combination:
    """One cluster whose features and events a seed decides."""

    def __init__(self, scene, folder, seed, watch, *, verbose=False):
        self.scene, self.cluster, self.clock = scene, scene.cluster, scene.cluster.clock
        self.rng = random.Random(f"combination {seed}")
        self.watch, self._folder, self._verbose = watch, folder, verbose
        self.features = []
        self._made = 0
        self._quotas_hold = True

    @property
    def breaches(self):
        return self.watch.breaches

    def has(self, name, share=0.35):
        """Draw whether a feature is used."""
        if self.rng.random() < share:
            self.features.append(name)
            return True
        return False

    # -- what there is -----------------------------------------------------------------------------

    def begin(self):
        rng = self.rng
        self.cluster.apply([NODE_CLASS])
        self.pools = ["general", "spare", "batch"][: rng.choice([1, 2, 2, 3])]
        self.cluster.apply([self._pool(name) for name in self.pools])
        gates, arguments = self._gates(), self._settings()
        if self.has("daemons", 0.3):
            self.cluster.apply([self._daemons()])
        for _ in range(rng.randint(1, 4)):
            self.deploy()
        self.arguments = [
            "--disable-leader-election",
            *arguments,
            *([f"--feature-gates={','.join(gates)}"] if gates else []),
            f"--kwok-registration-delay={rng.choice(['0s', '20s', '90s'])}",
            f"--kwok-termination-delay={rng.choice(['0s', '30s'])}",
        ]
        self._tell(f"features {self.features}, {self.arguments}")
        self.running = self.scene.start(*self.arguments, faults=self.watch.note_write)

    def _gates(self):
        gates = []
        if self.has("spot-to-spot"):
            gates.append("SpotToSpotConsolidation=true")
        if self.has("static"):
            gates.append("StaticCapacity=true")
            self.cluster.apply([self._static_pool()])
        if self.has("overlay"):
            gates.append("NodeOverlay=true")
            self.cluster.apply(self._overlays())
        if self.has("buffers", 0.6):
            gates.append("CapacityBuffer=true")
            self._add_buffers()
        return gates

    def _settings(self):
        rng, arguments = self.rng, []
        if self.has("quotas"):
            arguments.append("--capacity-quotas")
            self.cluster.apply([DEFINITION, self._quota("team")])
        if self.has("cutoff"):
            arguments.append("--priority-cutoff=0")
        if self.has("commitments", 0.3):
            arguments.append(self._commitments())
        if self.has("surge", 0.25):
            arguments.append("--surge-moves")
        if self.has("requests"):
            arguments.append("--provisioning-requests")
            self.cluster.apply([render_crd(ProvisioningRequest)])
            self.cluster.apply([template(cpu=rng.choice(["500m", "1", "3"])), template("others")])
        if self.has("max-nodes", 0.15):
            arguments.append(f"--max-nodes-total={rng.randint(3, 8)}")
        return arguments

    def _pool(self, name):
        rng = self.rng
        types = rng.choice([["on-demand"], ["spot"], ["on-demand", "spot"], ["on-demand", "spot"]])
        requirements = [
            {"key": CAPACITY_TYPE, "operator": "In", "values": types},
            {
                "key": CPU,
                "operator": "In",
                "values": rng.choice([["4"], ["4", "8"], ["2", "4", "8", "16"]]),
            },
        ]
        built = node_pool(
            name,
            template={"requirements": requirements},
            weight=rng.randint(1, 3),
            disruption=self._disruption(),
            **({"limits": self._limits()} if self.has(f"limits of {name}", 0.3) else {}),
        )
        annotations = {}
        if len(types) > 1 and self.has(f"spot share of {name}", 0.4):
            annotations["karpenter.sh/spot-share"] = rng.choice(["0%", "30%", "50%", "70%", "100%"])
        if self.has(f"return of {name}", 0.2):
            annotations["karpenter.sh/return-after"] = rng.choice(["5m", "30m"])
        if self.has(f"floor of {name}", 0.2):
            annotations["karpenter.sh/savings-floor"] = rng.choice(["10%", "0.05"])
        if self.has(f"schedules of {name}", 0.3):
            annotations["karpenter.sh/schedules"] = json.dumps(self._windows(name))
        built["metadata"]["annotations"] = annotations
        return built

    def _limits(self):
        rng = self.rng
        return rng.choice(
            [
                {"cpu": str(rng.choice([8, 16, 48]))},
                {"nodes": rng.randint(1, 5)},
                {"karpenter.sh/price-per-hour": rng.choice(["0.3", "1"])},
            ]
        )

    def _disruption(self):
        rng = self.rng
        policies = ["WhenEmpty", "WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "Balanced"]
        return {
            "consolidationPolicy": rng.choice(policies),
            "consolidateAfter": rng.choice(["0s", "0s", "30s", "5m"]),
            "budgets": [{"nodes": rng.choice(["1", "50%", "100%", "100%"])}],
        }

    def _static_pool(self):
        rng = self.rng
        replicas = rng.randint(0, 4)
        built = node_pool(
            STATIC,
            replicas=replicas,
            template={"requirements": [{"key": CPU, "operator": "In", "values": ["2", "4"]}]},
            disruption=self._disruption(),
            **({"limits": {"nodes": rng.randint(0, 5)}} if rng.random() < 0.5 else {}),
        )
        if self.has("schedules of static", 0.4):
            windows = json.dumps(self._windows(STATIC))
            built["metadata"]["annotations"] = {"karpenter.sh/schedules": windows}
        return built

    def _windows(self, pool):
        """Windows that open soon; each closes before the cluster is left alone, or long after."""
        rng = self.rng
        rows = []
        for number in range(rng.randint(1, 2)):
            start = self.clock.now() + timedelta(minutes=rng.choice([-10, 2, 10, 25]))
            effects = [{"shutdown": True}]
            if pool == STATIC:
                effects += [
                    {"replicas": rng.randint(0, 5)},
                    {"limits": {"nodes": rng.randint(0, 5)}},
                    {"replicas": rng.randint(0, 5), "limits": {"nodes": rng.randint(0, 5)}},
                ]
            else:
                effects += [
                    {"limits": {"cpu": rng.choice([4, 16, 64])}},
                    {"limits": {"nodes": rng.randint(0, 4)}, "consolidationPolicy": "WhenEmpty"},
                    {"consolidateAfter": rng.choice(["0s", "5m", "Never"])},
                ]
            rows.append(
                {
                    "name": f"window-{number}",
                    "schedule": f"{start.minute} {start.hour} {start.day} {start.month} *",
                    "duration": rng.choice(["5m", "15m", "48h"]),
                    **rng.choice(effects),
                }
            )
        return rows

    def _overlays(self):
        rng = self.rng
        dear = rng.choice(
            [{"priceAdjustment": "+50%"}, {"priceAdjustment": "-50%"}, {"price": "0"}]
        )
        chosen = rng.choice([one_of(CPU, "4"), one_of(CAPACITY_TYPE, "spot")])
        yield overlay("first", chosen, weight=2, **dear)
        if rng.random() < 0.4:
            fee = {"karpenter.sh/price-per-node": "0.02"}
            yield overlay("fee", annotations=fee, weight=1)

    def _add_buffers(self):
        rng = self.rng
        for number in range(rng.randint(1, 2)):
            chunk = pod_template(f"chunk{number}", cpu=rng.choice(["500m", "1", "2", "3"]))
            spec = chunk["template"]["spec"]
            if rng.random() < 0.3:
                pool = rng.choice([*self.pools, STATIC])
                spec["nodeSelector"] = {"karpenter.sh/nodepool": pool}
            if rng.random() < 0.3:
                spec["topologySpreadConstraints"] = [_spread("web", rng)]
            if rng.random() < 0.2:
                spec["affinity"] = _apart("web")
            self.cluster.apply([chunk])
            sizes = [
                {"replicas": rng.randint(1, 5)},
                {"limits": {"cpu": str(rng.randint(1, 8))}},
                {"replicas": rng.randint(1, 5), "limits": {"cpu": str(rng.randint(1, 8))}},
            ]
            buffer = {"podTemplateRef": {"name": f"chunk{number}"}, **rng.choice(sizes)}
            if rng.random() < 0.3:
                scaled = {"apiGroup": "apps", "kind": "Deployment", "name": "app1"}
                buffer = {"scalableRef": scaled, "percentage": rng.choice([10, 50, 200])}
            self.cluster.apply([_buffer(f"headroom{number}", buffer)])

    def _quota(self, name):
        rng = self.rng
        limits = rng.choice(
            [{"nodes": str(rng.randint(1, 7))}, {"cpu": str(rng.choice([6, 16, 40]))}]
        )
        selector = None
        if rng.random() < 0.4:
            selector = {"matchLabels": {"karpenter.sh/nodepool": rng.choice(self.pools)}}
        return capacity_quota(name, selector=selector, **limits)

    def _commitments(self):
        rng = self.rng
        row = {
            "name": "paid",
            "requirements": [{"key": CPU, "operator": "In", "values": [rng.choice(["4", "8"])]}],
            **rng.choice(
                [
                    {"resource": "cpu", "amount": rng.choice([8, 20, 64]), "price": 0},
                    {"resource": "nodes", "amount": rng.randint(1, 3), "price": 0.01},
                    {"resource": "spend", "amount": 0.5, "discount": "30%"},
                ]
            ),
        }
        return f"--commitments={json.dumps([row])}"

    def _daemons(self):
        cpu = self.rng.choice(["100m", "500m"])
        built = deployment("agent", 0, cpu=cpu, memory="64Mi")
        spec = built["spec"]
        spec["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
        selector = {"selector": spec["selector"], "template": spec["template"]}
        return {**built, "kind": "DaemonSet", "spec": selector}

    # -- what users do -----------------------------------------------------------------------------

    def deploy(self):
        rng = self.rng
        self._made += 1
        name = f"app{self._made}"
        pod = {"terminationGracePeriodSeconds": rng.choice([0, 5, 30])}
        if rng.random() < 0.25:
            pod["topologySpreadConstraints"] = [_spread(name, rng)]
        if rng.random() < 0.15:
            pod["affinity"] = _apart(name)
        if rng.random() < 0.3:
            pod["priority"] = rng.choice([-10, 10])
        if rng.random() < 0.2:
            pod["nodeSelector"] = {"karpenter.sh/nodepool": rng.choice([*self.pools, STATIC])}
        built = deployment(
            name,
            rng.choice([0, 1, 1, 2, 3, 5, 8]),
            cpu=rng.choice(["100m", "500m", "1", "1500m", "3"]),
            memory=rng.choice(["128Mi", "1Gi", "3Gi"]),
            **pod,
        )
        annotations = {}
        if rng.random() < 0.15:
            annotations["karpenter.sh/do-not-disrupt"] = rng.choice(["true", "10m"])
        if rng.random() < 0.15:
            annotations["karpenter.sh/expendable"] = "true"
        if rng.random() < 0.3:
            annotations["karpenter.sh/surge-move"] = "true"
        if annotations:
            built["spec"]["template"]["metadata"]["annotations"] = annotations
        objects = [built]
        if rng.random() < 0.3:
            objects.append(_budget(name, rng.choice([{"minAvailable": 1}, {"maxUnavailable": 1}])))
        self.cluster.apply(objects)

    def scale(self):
        for name in self._some(DEPLOYMENTS, 2):
            self.cluster.scale(DEPLOYMENTS, name, self.rng.choice([0, 1, 2, 4, 7, 10]))

    def relabel(self):
        """Edit a template, so that the nodes of the pool drift."""
        labels = {"example.com/edition": str(self.rng.randint(1, 9))}
        for name in self._some(NODE_POOLS, 1):
            self._edit(name, {"template": {"metadata": {"labels": labels}}})

    def limit(self):
        for name in self._some(NODE_POOLS, 1):
            if name != STATIC:
                self._edit(name, {"limits": None})
                self._edit(name, {"limits": self._limits()})
            else:
                self._edit(name, {"limits": {"nodes": self.rng.randint(0, 5)}})

    def redisrupt(self):
        for name in self._some(NODE_POOLS, 1):
            self._edit(name, {"disruption": self._disruption()})

    def resize(self):
        if "static" in self.features:
            self._edit(STATIC, {"replicas": self.rng.randint(0, 4)})
        for buffer in self.cluster.list(CAPACITY_BUFFERS):
            if "replicas" in buffer["spec"]:
                body = {"spec": {"replicas": self.rng.randint(0, 4)}}
                name = buffer["metadata"]["name"]
                self.cluster.patch(CAPACITY_BUFFERS, name, body, namespace="default")

    def requota(self):
        if "quotas" in self.features:
            for name in self._names(CAPACITY_QUOTAS):
                self.cluster.delete(CAPACITY_QUOTAS, name)
            self.cluster.apply([self._quota("team")])

    def ask(self):
        if "requests" not in self.features:
            return
        rng = self.rng
        self._made += 1
        kind = rng.choice([ATOMIC_SCALE_UP, ATOMIC_SCALE_UP, CHECK_CAPACITY])
        sets = [(name, rng.randint(1, 6)) for name in ("workers", "others")][: rng.randint(1, 2)]
        valid = (
            {"ValidUntilSeconds": "900"} if kind == ATOMIC_SCALE_UP and rng.random() < 0.5 else {}
        )
        job = f"job{self._made}"
        self.cluster.apply([request(job, *sets, provisioning_class=kind, **valid)])
        if rng.random() < 0.5:
            self.cluster.apply([consumer(f"{job}-{n}", job) for n in range(rng.randint(1, 3))])

    def delete_claim(self):
        for name in self._some(NODE_CLAIMS, 1):
            self.cluster.delete(NODE_CLAIMS, name)

    async def restart(self):
        await self.running.stop()
        self.running = self.scene.start(*self.arguments, faults=self.watch.note_write)

    # -- the course of it --------------------------------------------------------------------------

    async def unfold(self):
        self.begin()
        doings = {
            self.scale: 8, self.deploy: 3, self.relabel: 2, self.limit: 2, self.redisrupt: 2,
            self.resize: 3, self.requota: 1, self.ask: 5, self.delete_claim: 2, self.restart: 1,
        }  # fmt: skip
        for _ in range(self.rng.randint(2, 12)):
            await self._pass(self.rng.choice([5, 30, 120, 400]))
            await do_one(self.rng, doings, self._tell)
        await self._be_still()
        self._tell("workloads away")
        await self._become_empty()

    async def _be_still(self):
        self._tell("left alone")
        before = self._count()
        await self._pass(SETTLE_SECONDS)
        launched, _ = (now - then for now, then in zip(self._count(), before, strict=True))
        if launched > FEW:
            self.breaches.append(f"{launched} launches after all was left alone")
        self._tell(f"{launched} launches until now")
        before = self._count()
        await self._pass(STILL_SECONDS)
        launched, ended = (now - then for now, then in zip(self._count(), before, strict=True))
        if launched or ended:
            self.breaches.append(f"{launched} launches and {ended} ends in the time of rest")
        for node in self.scene.nodes():
            taints = {each["key"] for each in node["spec"].get("taints") or ()}
            if "karpenter.sh/disrupted" in taints and "deletionTimestamp" not in node["metadata"]:
                self.breaches.append(
                    f"{node['metadata']['name']} is marked for disruption and stays"
                )

    async def _become_empty(self):
        self._remove_workloads()
        await self._pass(EMPTY_SECONDS)
        for claim in self.scene.claims():
            pool = claim["metadata"]["labels"]["karpenter.sh/nodepool"]
            if pool != STATIC:
                self.breaches.append(f"{claim['metadata']['name']} of {pool} is left")
        if "static" in self.features:
            self._check_static(len(self.scene.claims()))

    def _remove_workloads(self):
        for name in self._names(PROVISIONING_REQUESTS) if "requests" in self.features else ():
            self.cluster.delete(PROVISIONING_REQUESTS, name, namespace="default")
        for name in self._names(CAPACITY_BUFFERS):
            self.cluster.delete(CAPACITY_BUFFERS, name, namespace="default")
        for name in self._names(DEPLOYMENTS):
            self.cluster.scale(DEPLOYMENTS, name, 0)
        for pod in self.cluster.list(PODS):
            if not pod["metadata"].get("ownerReferences"):
                self.cluster.delete(PODS, pod["metadata"]["name"], namespace="default")
        for name in self._names(NODE_POOLS):
            # Windows may rightly keep nodes that are empty.
            metadata = {"annotations": {"karpenter.sh/schedules": None}}
            self.cluster.patch(NODE_POOLS, name, {"metadata": metadata})

    def _check_static(self, count):
        spec = self.cluster.find(NODE_POOLS, STATIC)["spec"]
        limit = int((spec.get("limits") or {}).get("nodes", 99))
        expected = min(spec["replicas"], limit)
        is_certain = spec["replicas"] <= limit and not self._is_capped()
        if count > spec["replicas"] or (is_certain and count != expected):
            self.breaches.append(f"{count} static claims, {expected} expected")

    def _is_capped(self):
        return {"quotas", "max-nodes"} & set(self.features)

    async def _pass(self, seconds):
        until = self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0:
            await self.clock.sleep(min(left, 30.0))

    def _count(self):
        """Return how many instances were launched, and how many have ended."""
        file = self._folder / "kwok.sqlite3"
        if not file.exists():
            return 0, 0
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as stored:
            query = "SELECT count(*), count(terminating_at) FROM instances"
            return stored.execute(query).fetchone()

    def _names(self, kind):
        return sorted(each["metadata"]["name"] for each in self.cluster.list(kind))

    def _some(self, kind, most):
        names = self._names(kind)
        return self.rng.sample(names, min(len(names), self.rng.randint(1, most)))

    def _edit(self, name, spec):
        self.cluster.patch(NODE_POOLS, name, {"spec": spec})

    def _tell(self, what):
        if self._verbose:
            claims = len(self.scene.claims())
            print(f"=== {self.clock.now():%H:%M:%S} {what} ({claims} claims)", flush=True)  # noqa: T201


def _spread(app, rng):
    return {
        "maxSkew": 1,
        "topologyKey": rng.choice(["kubernetes.io/hostname", "topology.kubernetes.io/zone"]),
        "whenUnsatisfiable": rng.choice(["DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": {"matchLabels": {"app": app}},
    }


def _apart(app):
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _buffer(name, spec):
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def _budget(name, much):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, **much},
    }


class _Log:
    """Shows the log if it is wanted, and keeps errors that nobody expected."""

    def __init__(self, *, verbose):
        self.found = []
        self._verbose = verbose
        self._shown = structlog.dev.ConsoleRenderer(colors=False)

    def __call__(self, logger, method, event):
        if event.get("exc_info"):
            self.found.append(f"{event['event']}: {event['exc_info']!r}")
        if self._verbose and method != "debug":
            print(self._shown(logger, method, dict(event)))  # noqa: T201
        raise structlog.DropEvent


def breaches_of(seed, folder, *, verbose=False):
    """Play one cluster; return its features and what was wrong."""
    log, kept = _Log(verbose=verbose), []

    async def scenario(scene):
        with watch_invariants(scene) as watch:
            kept.append(Combination(scene, folder, seed, watch, verbose=verbose))
            await kept[0].unfold()

    before = structlog.get_config()
    structlog.configure(
        processors=[log], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False
    )
    try:
        run_controller(folder, scenario, seed=seed)
    finally:
        structlog.configure(**before)
    return kept[0].features, [*kept[0].breaches, *log.found]


def _play(job):
    seed, verbose = job
    gc.collect()
    with tempfile.TemporaryDirectory(prefix=f"combination-{seed}-") as folder:
        began = time.process_time()
        try:
            features, wrong = breaches_of(seed, Path(folder), verbose=verbose)
        except Exception as error:
            features, wrong = [], [f"ended with {error!r}"]
        return seed, features, wrong, time.process_time() - began


def main():
    """Play many clusters; the exit code is 1 when something was wrong in any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=50, help="how many clusters")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--verbose", action="store_true", help="tell and log what happens")
    options = parser.parse_args()
    jobs = [(options.seed + number, options.verbose) for number in range(options.count)]
    failed, seconds = [], 0.0
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for seed, features, wrong, spent in pool.imap_unordered(_play, jobs):
            seconds += spent
            if wrong:
                failed.append(seed)
                print(f"seed {seed} {features}:", *wrong[:8], sep="\n  ", flush=True)  # noqa: T201
    print(  # noqa: T201
        f"{options.count} clusters from seed {options.seed}, {seconds:.0f} CPU s, "
        f"{len(failed)} with breaches{f': {sorted(failed)}' if failed else ''}"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
