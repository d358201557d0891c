"""Lets everything go wrong between a whole controller and a simulated cloud, by a seed.

Calls are refused, answers lost, pools sell out, instances end without a word, boot slowly or never,
messages are nonsense, and the controller is killed, also in the middle of a launch. Users scale
Deployments and delete claims meanwhile. Then all faults end, and

- every pod has to run, with instances, claims and Nodes one to one;
- never has an instance been without a claim, or a claim without its instance, for an hour;
- no claim has got two instances, and none has changed its instance;
- instances of another cluster are still there;
- after the pods have gone, so has everything in the cloud.

    .venv/bin/python -m tests.clouds.chaos aws --count 60 --seed 100 --jobs 2
    .venv/bin/python -m tests.clouds.chaos azure --count 1 --seed 17 --verbose
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.provider.kit.simulated.instances import InstancePhase
from karpenter_core.provider.kit.simulated.kubelets import KubeletFaultKind
from karpenter_core.sim.store import DELETED
from karpenter_core.testing.expectations import CloudAccount
from karpenter_core.testing.provider_cluster import node_pool_manifest
from tests.clouds.stages import STAGES
from tests.controllers.histories import COLLECTED_AT, Errors
from tests.controllers.whole_controller import deployment
from tests.support.drawn_doings import do_one
from tests.support.invariants import Invariants, quiet_violations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud
    from karpenter_core.sim.store import ObjectChange
    from karpenter_core.testing.provider_cluster import ProviderCluster
    from tests.clouds.stages import ChaosStage

ACTIONS: Final = (8, 20)
LONGEST_PAUSE_SECONDS: Final = 600.0
LONGEST_FAULT_SECONDS: Final = 900.0
TOLERANCE_SECONDS: Final = 3600.0
"""Time for which instances, claims and Nodes may disagree."""
REST_SECONDS: Final = 4 * 3600.0
"""Time limit for a cluster without faults to come to rest: longer than any back-off."""
LOOK_SECONDS: Final = 30.0
MOST_DEPLOYMENTS: Final = 4
MOST_REPLICAS: Final = 6


class Chaos:
    """One cluster on one cloud, and what goes wrong."""

    def __init__(
        self, stage: ChaosStage, seed: int, *, actions: int = 0, verbose: bool = False
    ) -> None:
        self._stage = stage
        self._cloud: SimulatedCloud[Any] = stage.cloud
        self._rng = random.Random(seed)
        self._actions = actions or self._rng.randint(*ACTIONS)
        self._verbose = verbose
        self._ends: list[tuple[float, Callable[[], object]]] = []
        self._foreign: list[str] = []
        self._apart: dict[str, float] = {}
        self._instances: dict[str, str] = {}
        """Provider IDs by the UID of the claim."""
        self._claims: set[str] = set()
        self._taken: set[str] = set()
        """Provider IDs of the instances that the cloud has ended: a claim may get another one."""
        self._made = 0
        self.happened: Counter[str] = Counter()
        self.breaches: list[str] = []

    # -- the course of it --------------------------------------------------------------------------

    async def unfold(self, cluster: ProviderCluster) -> None:
        """Let everything happen, end all faults, wait for rest, then for nothing to be left."""
        self._cluster, self._harness = cluster, cluster.harness
        self._clock = cluster.harness.cluster.clock
        self._watch = Invariants(cluster.harness)
        self._harness.cluster.server.registry.store.listen(NODE_CLAIMS, self._note_claim)
        kubelets = asyncio.create_task(self._register_nodes())
        try:
            await self._unfold()
        finally:
            kubelets.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await kubelets
        self.breaches += self._watch.breaches

    async def _unfold(self) -> None:
        self._begin()
        doings = self._doings()
        for _ in range(self._actions):
            await self._pass(LONGEST_PAUSE_SECONDS * self._rng.random() ** 3)
            await do_one(self._rng, doings, self._tell)
        self._tell("faults ended")
        self._end_faults(due=float("inf"))
        self._let_boot_soon()
        if not await self._rest(self._quiet_violations):
            return
        self._check_purchases()
        self._tell("pods away")
        for name in self._deployments():
            self._harness.cluster.scale(DEPLOYMENTS, name, 0)
        await self._rest(self._leftovers)
        living = {self._cloud.provider_id(each) for each in self._cloud.living()}
        self.breaches += [f"foreign {each} is gone" for each in self._foreign if each not in living]

    def _begin(self) -> None:
        self._let_boot()
        disruption = {
            "consolidationPolicy": self._rng.choice(["WhenEmpty", "WhenEmptyOrUnderutilized"]),
            "consolidateAfter": self._rng.choice(["0s", "30s", "5m"]),
            "budgets": [{"nodes": "100%"}],
        }
        capacity = self._rng.choice([["on-demand"], ["spot", "on-demand"]])
        self._cluster.apply(
            self._stage.node_class(),
            node_pool_manifest(
                self._stage.model,
                requirements={"karpenter.sh/capacity-type": capacity},
                disruption=disruption,
            ),
        )
        self._deploy()

    def _doings(self) -> dict[Callable[[], Any], int]:
        """Return everything that may happen, with its weight."""
        return {
            self._scale: 8, self._deploy: 3, self._delete_claim: 2, self._delete_node: 1,
            self._refuse_calls: 6, self._cut_off: 2, self._lose_replies: 4, self._cut_bodies: 2,
            self._throttle: 2, self._sell_out: 4, self._fail_late: 1, self._spoil_boots: 2,
            self._let_boot: 2, self._hide: 2, self._terminate: 3, self._reclaim: 3, self._disturb: 2,
            self._launch_foreign: 1, self._kill: 3, self._restart: 1, self._kill_in_launch: 3,
        }  # fmt: skip

    # -- what users do -----------------------------------------------------------------------------

    def _deploy(self) -> None:
        self._made += 1
        cpu = self._rng.choice(["500m", "1", "1500m", "3"])
        replicas = self._rng.randint(1, MOST_REPLICAS)
        if len(self._deployments()) >= MOST_DEPLOYMENTS:
            return self._scale()
        return self._cluster.apply(deployment(f"app-{self._made}", replicas, cpu=cpu))

    def _scale(self) -> None:
        name = self._rng.choice(self._deployments())
        self._harness.cluster.scale(DEPLOYMENTS, name, self._rng.randint(0, MOST_REPLICAS))

    def _delete_claim(self) -> None:
        if claims := self._harness.claims():
            self._harness.cluster.delete(NODE_CLAIMS, self._rng.choice(claims)["metadata"]["name"])

    def _delete_node(self) -> None:
        if nodes := self._harness.nodes():
            self._harness.cluster.delete(NODES, self._rng.choice(nodes)["metadata"]["name"])

    # -- what the cloud does -----------------------------------------------------------------------

    def _refuse_calls(self) -> None:
        status = self._rng.choice([500, 503])
        fault = self._cloud.fail(
            self._any_call(), code="InternalError", status=status, times=self._times()
        )
        self._end_later(fault.end)

    def _cut_off(self) -> None:
        self._end_later(self._cloud.cut_off().end)

    def _lose_replies(self) -> None:
        calls = (*self._stage.launches, *self._stage.launches, *self._stage.terminations)
        calls += tuple(self._stage.writes)
        fault = self._cloud.lose_replies(self._rng.choice(calls), times=self._times())
        self._end_later(fault.end)
        self._scale()

    def _cut_bodies(self) -> None:
        self._end_later(self._cloud.cut_bodies(self._any_call(), times=self._times()).end)

    def _throttle(self) -> None:
        error = self._stage.throttled
        fault = self._cloud.fail(
            self._any_call(),
            code=error.code,
            status=error.status,
            retry_after_seconds=error.retry_after_seconds,
            times=self._times(),
        )
        self._end_later(fault.end)

    def _sell_out(self) -> None:
        living = self._cloud.living()
        pool = self._rng.choice(living).pool if living else None
        if pool is None or self._rng.random() < 0.3:
            rule = self._cloud.shared.capacity.sell_out(
                capacity_type=self._rng.choice(["spot", "on-demand"])
            )
        else:
            rule = self._cloud.shared.capacity.sell_out(
                instance_type=pool.instance_type, zone=self._rng.choice([pool.zone, "*"])
            )
        self._end_later(rule.end)
        self._scale()

    def _fail_late(self) -> None:
        living = self._cloud.living()
        if not living:
            return
        error = self._cloud.shared.capacity.sold_out(self._rng.choice(living).pool)
        fault = self._cloud.fail_late(
            code=error.code, after_seconds=self._rng.choice([1, 20, 90]), times=self._times()
        )
        self._end_later(fault.end)
        self._scale()

    def _spoil_boots(self) -> None:
        kind = self._rng.choice([KubeletFaultKind.NEVER_JOINS, KubeletFaultKind.SLOW])
        seconds = self._rng.choice([60, 300, 1200])
        fault = self._cloud.shared.kubelets.fault(kind, seconds=seconds)
        self._end_later(fault.end)

    def _let_boot(self) -> None:
        behaviour, choice = self._cloud.shared.behaviour, self._rng.choice
        behaviour.pending_seconds = choice([0, 5, 40])
        behaviour.boot_seconds = choice([0, 20, 120])
        behaviour.terminating_seconds = choice([0, 10, 90])
        behaviour.gone_visible_seconds = choice(self._stage.gone_visible_seconds)

    def _let_boot_soon(self) -> None:
        behaviour = self._cloud.shared.behaviour
        behaviour.pending_seconds, behaviour.boot_seconds = 5, 20
        behaviour.terminating_seconds, behaviour.invisible_seconds = 10, 0

    def _hide(self) -> None:
        """Have new instances described late."""
        behaviour = self._cloud.shared.behaviour
        behaviour.invisible_seconds = self._rng.choice([1, 10, 60])
        self._end_later(lambda: setattr(behaviour, "invisible_seconds", 0))
        self._scale()

    def _terminate(self) -> None:
        """End an instance as somebody does in the console."""
        if own := self._own():
            provider_id = self._cloud.provider_id(self._rng.choice(own))
            self._excuse(provider_id)
            self._cloud.terminate(provider_id)

    def _reclaim(self) -> None:
        if spot := [each for each in self._own() if each.capacity_type == "spot"]:
            provider_id = self._cloud.provider_id(self._rng.choice(spot))
            self._excuse(provider_id)
            self._cloud.reclaim(provider_id, notice_seconds=self._rng.choice([None, 5.0]))

    def _excuse(self, provider_id: str) -> None:
        self._watch.excuse(provider_id)
        self._taken.add(provider_id)

    def _disturb(self) -> None:
        self._stage.disturb(self._rng)

    def _launch_foreign(self) -> None:
        self._made += 1
        before = set(map(self._cloud.provider_id, self._cloud.living()))
        with contextlib.suppress(Exception):  # a fault strikes its owner too, maybe in the answer
            self._stage.launch_foreign(self._made)
        after = map(self._cloud.provider_id, self._cloud.living())
        self._foreign += [each for each in after if each not in before]

    # -- what happens to the controller ------------------------------------------------------------

    async def _kill(self) -> None:
        await self._cluster.running.kill()
        await self._clock.sleep(self._rng.choice([0.5, 5, 60]))
        self._cluster.running = self._harness.start()

    async def _restart(self) -> None:
        if self._cluster.running.is_alive:
            await self._cluster.running.stop()
        self._cluster.running = self._harness.start()

    async def _kill_in_launch(self) -> None:
        """Cut the controller off when the cloud gets a launch, which is carried out."""
        running, struck = self._cluster.running, list[bool]()

        def cut(_parameters: object) -> bool:
            struck.append(True)  # the controller waits for the answer: it computes nothing now
            for cable in running._cables:
                cable.is_cut = True
            return True

        calls = [self._cloud.faults.add(fault) for fault in self._launch_faults(where=cut)]
        self._scale()
        self._deploy()
        until = self._clock.monotonic() + 120
        while not struck and self._clock.monotonic() < until:
            await self._pass(1.0)
        for fault in calls:
            fault.end()
        await self._kill()

    def _launch_faults(self, *, where: Callable[[object], bool]) -> Iterator[Any]:
        for name in self._stage.launches:
            fault = self._cloud.lose_replies(name, times=1)
            fault.end()
            fault.where = where
            yield fault

    # -- kubelets, and the controllers of the cloud ------------------------------------------------

    async def _register_nodes(self) -> None:
        cluster, names = self._harness.cluster, dict[str, str]()
        announced = set[str]()
        while True:
            nodes: dict[str, Any] = dict(self._cloud.nodes())
            for provider_id, node in nodes.items():
                if provider_id not in names:
                    if (
                        cluster.find(NODES, node["metadata"]["name"]) is None
                    ):  # addresses come again
                        cluster.apply([node])
                        names[provider_id] = node["metadata"]["name"]
                elif node["status"].get("conditions") and provider_id not in announced:
                    announced.add(provider_id)
                    self._announce(names[provider_id], node["status"]["conditions"])
            for provider_id in names.keys() - nodes.keys():
                name = names.pop(provider_id)
                if cluster.find(NODES, name) is not None:
                    cluster.delete(NODES, name)
            await self._clock.sleep(1)

    def _announce(self, name: str, conditions: list[Any]) -> None:
        cluster = self._harness.cluster
        if (current := cluster.find(NODES, name)) is not None:
            body = {
                "status": {"conditions": [*current["status"].get("conditions", ()), *conditions]}
            }
            cluster.server.registry.patch(NODES, body, name, part="status")

    # -- checks ------------------------------------------------------------------------------------

    def _note_claim(self, change: ObjectChange) -> None:
        claim, uid = change.stored.obj, change.stored.uid
        self._claims.add(uid)
        provider_id = claim.get("status", {}).get("providerID", "")
        if change.type == DELETED or not provider_id:
            return
        before = self._instances.setdefault(uid, provider_id)
        name = claim["metadata"]["name"]
        if before != provider_id:
            self._breach(f"claim {name} had {before}, and has {provider_id}")
        if list(self._instances.values()).count(provider_id) > 1:
            self._breach(f"{provider_id} has two claims, {name} is one")

    def _check_purchases(self) -> None:
        bought = [
            each
            for each in self._cloud.shared.instances.all
            if self._cloud.provider_id(each) not in {*self._foreign, *self._taken}
        ]
        if len(bought) > len(self._claims):
            self._breach(f"{len(bought)} instances were bought for {len(self._claims)} claims")

    def _look(self) -> None:
        if not self._cluster.running.is_alive:
            self._tell("the process has ended by itself and is started anew")
            self._cluster.running = self._harness.start()
        now = self._clock.monotonic()
        self._apart = {what: self._apart.get(what, now) for what in self._unpaired()}
        for what, since in self._apart.items():
            if now - since > TOLERANCE_SECONDS:
                self._breach(f"for an hour: {what}")
                self._apart[what] = float("inf")

    def _unpaired(self) -> Iterator[str]:
        claims = {
            claim["status"].get("providerID", ""): claim["metadata"]["name"]
            for claim in self._harness.claims()
            if "status" in claim
        }
        claims.pop("", None)
        living = {self._cloud.provider_id(each) for each in self._own()}
        for provider_id in sorted(living - claims.keys()):
            yield f"{provider_id} without claim"
        for provider_id in sorted(claims.keys() - living):
            yield f"claim {claims[provider_id]} without instance"

    def _quiet_violations(self) -> list[str]:
        instances = [{"providerID": self._cloud.provider_id(each)} for each in self._own()]
        return quiet_violations(self._harness, CloudAccount(instances=instances))

    def _leftovers(self) -> list[str]:
        foreign = {each.rpartition("/")[2].rpartition(".")[2] for each in self._foreign}
        left = [each for each in self._stage.left() if not any(name in each for name in foreign)]
        return [
            *(f"left: {each['metadata']['name']}" for each in self._harness.claims()),
            *(f"left: {each['metadata']['name']}" for each in self._harness.nodes()
              if each["spec"].get("providerID") not in self._foreign),
            *(f"left in the cloud: {each}" for each in left),
        ]  # fmt: skip

    # -- tools -------------------------------------------------------------------------------------

    async def _rest(self, wrong: Callable[[], list[str]]) -> bool:
        deadline = self._clock.monotonic() + REST_SECONDS
        while missing := wrong():
            if self._clock.monotonic() > deadline:
                for each in missing:
                    self._breach(f"no rest: {each}")
                return False
            await self._pass(LOOK_SECONDS)
        return True

    async def _pass(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while (left := until - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(left, LOOK_SECONDS))
            self._end_faults(due=self._clock.monotonic())
            self._look()

    def _end_later(self, end: Callable[[], object]) -> None:
        seconds = LONGEST_FAULT_SECONDS * self._rng.random() ** 2
        self._ends.append((self._clock.monotonic() + seconds, end))

    def _end_faults(self, *, due: float) -> None:
        for each in [each for each in self._ends if each[0] <= due]:
            self._ends.remove(each)
            each[1]()

    def _times(self) -> int | None:
        return self._rng.choice([1, 1, 2, 4, None])

    def _any_call(self) -> str:
        stage = self._stage
        kind = self._rng.choice([stage.launches, stage.terminations, stage.writes, stage.reads])
        return self._rng.choice(kind)

    def _own(self) -> list[Any]:
        """Return the instances of the cluster."""
        foreign, phase_of = set(self._foreign), self._cloud.shared.instances.phase_of
        return [
            each
            for each in self._cloud.living()
            if self._cloud.provider_id(each) not in foreign
            and not (self._stage.ends_failed and phase_of(each) is InstancePhase.FAILED)
        ]

    def _deployments(self) -> list[str]:
        return sorted(e["metadata"]["name"] for e in self._harness.cluster.list(DEPLOYMENTS))

    def _breach(self, what: str) -> None:
        self.breaches.append(f"{self._clock.now():%H:%M:%S} {what}")

    def _tell(self, what: str) -> None:
        self.happened[what] += 1
        if self._verbose:
            print(f"=== {self._clock.now():%H:%M:%S} {what}")  # noqa: T201


def breaches_of(
    stage: ChaosStage, seed: int, folder: Path, *, actions: int = 0, verbose: bool = False
) -> tuple[list[str], Counter[str]]:
    """Play a seed on a cloud that serves; return what was wrong, and what happened.

    `actions` is how much happens; 0 lets the seed decide.
    """
    stage.cloud.reset()
    errors, chaos = Errors(verbose=verbose), Chaos(stage, seed, actions=actions, verbose=verbose)

    async def story(cluster: ProviderCluster) -> None:
        asyncio.get_running_loop().set_exception_handler(errors.note_unhandled)
        await chaos.unfold(cluster)

    before = structlog.get_config()
    structlog.configure(
        processors=[errors], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False
    )
    try:
        stage.play(folder, story)
    finally:
        structlog.configure(**before)
    gc.collect()  # a task tells of its error when it is freed
    return [*chaos.breaches, *errors.found], chaos.happened


def _live(job: tuple[str, int, int, bool]) -> tuple[int, list[str], Counter[str], float]:
    name, seed, actions, verbose = job
    gc.set_threshold(*COLLECTED_AT)
    began = time.process_time()
    happened: Counter[str] = Counter()
    stage = STAGES[name]()
    with tempfile.TemporaryDirectory(prefix=f"chaos-{seed}-") as folder, stage.open():
        try:
            wrong, happened = breaches_of(
                stage, seed, Path(folder), actions=actions, verbose=verbose
            )
        except Exception as error:
            if verbose:
                raise
            wrong = [f"ended with {error!r}"]
    return seed, wrong, happened, time.process_time() - began


def main() -> None:
    """Play many seeds; the exit code is 1 when something was wrong in any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("provider", choices=sorted(STAGES))
    parser.add_argument("--count", type=int, default=20, help="how many seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument(
        "--actions", type=int, default=0, help="how much happens; 0: the seed decides"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--verbose", action="store_true", help="tell and log what happens")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.count)
    jobs = [(options.provider, seed, options.actions, options.verbose) for seed in seeds]
    failed, everything, cpu = [], Counter[str](), 0.0
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.jobs, maxtasksperchild=10) as pool:
        for seed, wrong, happened, seconds in pool.imap_unordered(_live, jobs):
            everything.update(happened)
            cpu += seconds
            if wrong:
                failed.append(seed)
                print(f"seed {seed}:", *wrong[:8], sep="\n  ", flush=True)  # noqa: T201
    print(  # noqa: T201
        f"{options.provider}: {options.count} seeds from {options.seed}, {cpu:.0f} s of CPU, "
        f"{len(failed)} with breaches{f': {sorted(failed)}' if failed else ''}\n"
        f"what happened: {dict(sorted(everything.items()))}"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
