"""Let a cluster live through a day of changing load and count what consolidation does to its pods.

Three loads on the embedded cluster in simulated time: an autoscaler that adds and takes away one
replica every ten minutes; a wave of day and night; and stateful pods that ask for eight cores and
200 GB and use little of it (only requests count, so nothing may move again and again). Each under
four policies, and under none: what a policy saves is what the day costs less than without.

    .venv/bin/python benchmarks/churn.py
    .venv/bin/python benchmarks/churn.py --load hpa --policy Balanced --hours 6 --journal moves.jsonl

Exit code 1 when a move saved less than its floor, a pod was moved twice within an hour while the
load stayed the same, or an instance that had just come for another was replaced itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.churn_loads import LOADS, NONE, POLICIES, STEP, node_pool
from karpenter_core.api.decisions import DISRUPT, decision_document
from karpenter_core.api.labels import DISRUPTED_TAINT, SAVINGS_FLOOR
from karpenter_core.api.savings import SavingsFloor
from karpenter_core.disruption.pricing import NodePrices
from karpenter_core.kube.resources import DEPLOYMENTS, NODES, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_kwok.plugin import KwokProvider

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.churn_loads import Policy, ServiceLoad
    from karpenter_core.api.decisions import Decision
    from karpenter_core.sim.store import ObjectChange
    from karpenter_core.testing.harness import RunningProcess

HOUR = timedelta(hours=1)
SAMPLE_SECONDS = 30.0
NEGLIGIBLE = 1e-6
IDLE_SHARE = 0.5


# -- what is counted -------------------------------------------------------------------------------


@dataclass(kw_only=True)
class ChurnOutcome:
    """The figures of one day; money is in the reporting currency."""

    load: str
    policy: str
    hours: float
    cost: float = 0.0
    commands: int = 0
    replacements: int = 0
    moved_pods: int = 0
    """Pods that were evicted from instances that a command took."""
    below_floor: int = 0
    """Moves that saved less than their floor, or nothing, at the price that was really paid.

    The floor is at least half the price of what consolidation has launched within the hour."""
    moved_again: int = 0
    """Pods moved a second time within an hour, the load being the same."""
    replaced_again: int = 0
    """Instances that came for others and were replaced within an hour, the load being the same."""
    moved_again_after_change: int = 0
    replaced_again_after_change: int = 0
    most_pending_pods: int = 0
    pending_pods_at_end: int = 0
    nodes_at_end: int = 0
    errors: int = 0
    """Reconciles that failed."""
    seconds: float = 0.0
    details: list[str] = field(default_factory=list[str])

    @property
    def faults(self) -> int:
        """The number of faults: disruptions that must not happen."""
        return self.below_floor + self.moved_again + self.replaced_again


@dataclass
class ObservedClaim:
    """An instance as it was last seen, and which decision it was made for."""

    created: datetime
    decision: str
    name: str
    price_per_hour: float | None = None


class _ClusterWatcher:
    """Follows pods and claims through the store, as nobody in the cluster can.

    A pod that is evicted has a successor: the next pod that its ReplicaSet makes. So moves can be
    told from each other though every pod has a new name.
    """

    def __init__(self, harness: ControllerHarness, outcome: ChurnOutcome) -> None:
        self._harness = harness
        self._outcome = outcome
        self.claims: dict[str, ObservedClaim] = {}
        self._moved: dict[str, datetime] = {}
        """Times at which predecessors of pods were moved, by the UID of the pod."""
        self._heirs: dict[str, list[datetime]] = {}
        self.changes: list[datetime] = []
        """Times of changes of the load."""
        store = harness.cluster.server.registry.store
        store.listen(PODS, self._on_pod)
        store.listen(NODE_CLAIMS, self._on_claim)

    @property
    def now(self) -> datetime:
        return self._harness.cluster.clock.now()

    def is_same_load(self, since: datetime) -> bool:
        """Tell whether the load has not changed since then."""
        return not self.changes or self.changes[-1] < since

    def note_change(self) -> None:
        """Note that the load changes now."""
        self.changes.append(self.now)

    def _on_pod(self, change: ObjectChange) -> None:
        pod, before = change.stored.obj, change.previous
        metadata = pod["metadata"]
        owner = next((ref["uid"] for ref in metadata.get("ownerReferences", ())), "")
        if before is None:
            heirs = self._heirs.get(owner)
            if heirs:
                self._moved[metadata["uid"]] = heirs.pop(0)
            return
        was_going = "deletionTimestamp" in before.obj["metadata"]
        if was_going or "deletionTimestamp" not in metadata or change.type == "DELETED":
            return
        if not self._is_disrupted(pod["spec"].get("nodeName", "")):
            return
        self._outcome.moved_pods += 1
        earlier = self._moved.pop(metadata["uid"], None)
        if earlier is not None and self.now - earlier < HOUR:
            if self.is_same_load(earlier):
                self._outcome.moved_again += 1
                self._outcome.details.append(
                    f"{self.now:%H:%M:%S} {metadata['name']} moved again after {self.now - earlier}"
                )
            else:
                self._outcome.moved_again_after_change += 1
        self._heirs.setdefault(owner, []).append(self.now)

    def _is_disrupted(self, name: str) -> bool:
        node = self._harness.cluster.find(NODES, name) if name else None
        taints = [] if node is None else node["spec"].get("taints", [])
        return any(taint["key"] == DISRUPTED_TAINT for taint in taints)

    def _on_claim(self, change: ObjectChange) -> None:
        metadata = change.stored.obj["metadata"]
        if metadata["name"] not in self.claims:
            self.claims[metadata["name"]] = ObservedClaim(
                created=self.now,
                decision=metadata.get("annotations", {}).get("karpenter.sh/decision-id", ""),
                name=metadata["name"],
            )


def price_now(running: RunningProcess, watcher: _ClusterWatcher) -> float:
    """Return what the cluster costs per hour, and note what each instance does."""
    snapshot = running.process.cluster_state.snapshot()
    prices = NodePrices(snapshot, SolveOptions())
    total = 0.0
    for state_node in snapshot.state_nodes:
        price = prices.convert(prices.price_of(state_node))
        total += price
        claim = watcher.claims.get(state_node.claim.name) if state_node.claim else None
        if claim is not None and price > 0:
            claim.price_per_hour = price
    return total


def count_faults(
    outcome: ChurnOutcome,
    decisions: Sequence[Decision],
    claims: Mapping[str, ObservedClaim],
    changes: Sequence[datetime],
    *,
    floor: SavingsFloor,
) -> None:
    """Count moves and what was wrong with them; `changes` are the times at which the load changed."""
    commands = {
        item.id: item
        for item in decisions
        if item.kind == DISRUPT and not item.rejection and not item.failure
    }
    made_by: dict[str, list[ObservedClaim]] = {}
    for claim in claims.values():
        if claim.decision in commands:
            made_by.setdefault(claim.decision, []).append(claim)
    for command in commands.values():
        outcome.commands += 1
        outcome.replacements += len(command.launches)
        if command.reason != "Underutilized" or command.price_per_hour_before is None:
            continue
        before = command.price_per_hour_before.amount
        paid = sum(claim.price_per_hour or 0.0 for claim in made_by.get(command.id, ()))
        resting = sum(
            candidate.price_per_hour.amount
            for candidate in command.candidates
            if (claim := claims.get(candidate.node_claim)) is not None
            and (maker := commands.get(claim.decision)) is not None
            and maker.reason == "Underutilized"
            and command.at - claim.created < HOUR
        )
        least = max(floor.share * before, floor.amount_per_hour, IDLE_SHARE * resting)
        if before - paid <= 0 or before - paid < least - NEGLIGIBLE:
            outcome.below_floor += 1
            outcome.details.append(
                f"{command.at:%H:%M:%S} saved {before - paid:.4f} of {before:.4f}: {command.summary}"
            )
        for candidate in command.candidates:
            claim = claims.get(candidate.node_claim)
            if (
                command.launches
                and claim is not None
                and claim.decision in commands
                and command.at - claim.created < HOUR
            ):
                if any(claim.created <= at <= command.at for at in changes):
                    outcome.replaced_again_after_change += 1
                else:
                    outcome.replaced_again += 1
                    outcome.details.append(f"{command.at:%H:%M:%S} again: {command.summary}")


# -- a day -----------------------------------------------------------------------------------------


async def run_cluster(
    harness: ControllerHarness,
    outcome: ChurnOutcome,
    services: Sequence[ServiceLoad],
    policy: Policy,
) -> tuple[Decision, ...]:
    """Start everything, let the hours pass, fill in the outcome; return the decisions made."""
    running = harness.start()
    watcher = _ClusterWatcher(harness, outcome)
    decisions: list[Decision] = []
    running.process.runtime.journal.add_sink(decisions.append)
    harness.cluster.apply(node_pool(policy))
    for service in services:
        harness.cluster.apply(service.manifests())
    clock = harness.cluster.clock
    started = clock.monotonic()
    seconds = outcome.hours * 3600
    step = 0
    while clock.monotonic() - started < seconds:
        await clock.sleep(SAMPLE_SECONDS)
        outcome.cost += price_now(running, watcher) * SAMPLE_SECONDS / 3600
        outcome.most_pending_pods = max(outcome.most_pending_pods, _pending(harness))
        if (clock.monotonic() - started) // STEP.total_seconds() > step:
            step += 1
            for service in services:
                if service.replicas(step) != service.replicas(step - 1):
                    harness.cluster.scale(DEPLOYMENTS, service.name, service.replicas(step))
                    watcher.note_change()
    outcome.pending_pods_at_end = _pending(harness)
    outcome.nodes_at_end = len(harness.nodes())
    outcome.errors = round(_errors(running))
    count_faults(outcome, decisions, watcher.claims, watcher.changes, floor=_floor_of(policy))
    return tuple(decisions)


def _pending(harness: ControllerHarness) -> int:
    return sum(not pod["spec"].get("nodeName") for pod in harness.pods())


def _errors(running: RunningProcess) -> float:
    metric = running.process.metrics.reconcile_errors
    return sum(sample.value for family in metric.collect() for sample in family.samples
               if sample.name.endswith("_total"))  # fmt: skip


def _floor_of(policy: Policy) -> SavingsFloor:
    text = policy[1].get(SAVINGS_FLOOR)
    return SavingsFloor() if text is None else SavingsFloor.parse(text)


def simulate(
    load: str,
    policy: str,
    *,
    hours: float,
    folder: Path,
    services: Sequence[ServiceLoad] | None = None,
) -> tuple[ChurnOutcome, tuple[Decision, ...]]:
    """Let a cluster live under a load and a policy, both by name; `services` make a load of one's own."""
    outcome = ChurnOutcome(load=load, policy=policy, hours=hours)
    started = time.perf_counter()

    async def told() -> tuple[Decision, ...]:
        harness = ControllerHarness(
            lambda: {"kwok": KwokProvider()},
            folder=folder,
            arguments=("--disable-leader-election",),  # a renewal every two seconds, for nothing
        )
        async with harness:
            return await run_cluster(harness, outcome, services or LOADS[load], POLICIES[policy])

    decisions = run_virtual(told())
    outcome.seconds = time.perf_counter() - started
    return outcome, decisions


# -- the program -----------------------------------------------------------------------------------


def shown(outcomes: Sequence[ChurnOutcome]) -> Table:
    """Return outcomes as a table; savings are against the same load without consolidation."""
    table = Table(box=None, pad_edge=False)
    for name in ("load", "policy"):
        table.add_column(name, no_wrap=True)
    for name in (
        "cost", "saved", "commands", "pods moved", "pods/saved", "below floor", "moved again",
        "replaced again", "errors", "seconds",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    without = {each.load: each.cost for each in outcomes if each.policy == NONE}
    for each in outcomes:
        saved = without.get(each.load, each.cost) - each.cost
        table.add_row(
            each.load, each.policy, f"{each.cost:.2f}", f"{saved:.2f}", str(each.commands),
            str(each.moved_pods), f"{each.moved_pods / saved:.2f}" if saved > NEGLIGIBLE else "-",
            str(each.below_floor), _pair(each.moved_again, each.moved_again_after_change),
            _pair(each.replaced_again, each.replaced_again_after_change), str(each.errors),
            f"{each.seconds:.0f}",
        )  # fmt: skip
    return table


def _pair(fault: int, explained: int) -> str:
    """Write a count; in brackets how often the load had changed meanwhile, which is no fault."""
    return f"{fault} ({explained})" if explained else str(fault)


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(description="Simulated churn.")
    parser.add_argument("--load", choices=[*LOADS], action="append")
    parser.add_argument("--policy", choices=[*POLICIES], action="append")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--journal", type=Path, help="write every decision there (JSON Lines)")
    parser.add_argument("--json", type=Path, help="write the outcomes there")
    parser.add_argument("--log", default="critical", help="what the controller logs")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(options.log))
    outcomes: list[ChurnOutcome] = []
    for load in options.load or LOADS:
        for policy in options.policy or POLICIES:
            with tempfile.TemporaryDirectory() as folder:
                outcome, decisions = simulate(
                    load, policy, hours=options.hours, folder=Path(folder)
                )
            outcomes.append(outcome)
            for line in outcome.details:
                print(f"{load}/{policy}: {line}", file=sys.stderr)
            if options.journal is not None:
                _append(options.journal, load, policy, decisions)
    Console(width=160).print(shown(outcomes))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=2))
    return 1 if any(each.faults for each in outcomes) else 0


def _append(path: Path, load: str, policy: str, decisions: Sequence[Decision]) -> None:
    with path.open("a") as file:
        for decision in decisions:
            head: Mapping[str, Any] = {"load": load, "policy": policy}
            file.write(json.dumps({**head, **decision_document(decision)}) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
