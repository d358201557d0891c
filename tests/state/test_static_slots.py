"""No number of processes with old views ever exceeds a node limit or creates a claim twice."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.controllers.provisioning.new_claims import name_suffix, slot_ids
from karpenter_core.state.static_pools import (
    StaticNodeAllowance,
    missing_replicas,
    static_pool_claims,
)
from karpenter_core.testing.builders import EPOCH, node_pool
from karpenter_core.testing.state_builders import node_claim, synced_state
from tests.properties import with_examples

PROCESSES = 3
PASSES = 60
CHANCES = {"list": 3, "decide": 4, "arrive": 8, "restart": 1, "delete": 1, "remove": 1, "scale": 1}


class Process:
    """A controller with its view of the cluster, and the requests that it has sent."""

    def __init__(self):
        self.view, self.in_flight = None, []


class Cluster:
    """An API server that has every name once, and processes that act on views of any age."""

    def __init__(self, limit):
        self.limit, self.replicas = limit, 3
        self.claims = {}
        """By name, whether the claim is being deleted."""
        self.processes = [Process() for _ in range(PROCESSES)]
        self.requests = []
        """Names whose creation is on its way; a dead process' requests arrive all the same."""

    def list(self, process, _):
        process.view = (self.replicas, dict(self.claims))

    def restart(self, process, _):
        process.view, process.in_flight = None, []

    def decide(self, process, _):
        if process.view is None:
            return
        replicas, view = process.view
        pool = node_pool(replicas=replicas, limits={"nodes": str(self.limit)})
        existing = [
            node_claim(name, deleted=EPOCH if deleting else None) for name, deleting in view.items()
        ]
        snapshot = synced_state(pool, *existing).snapshot()
        missing = missing_replicas(pool, static_pool_claims(snapshot, pool.name))
        allowance = StaticNodeAllowance(snapshot, in_flight={pool.name: len(process.in_flight)})
        granted = 0
        while granted < missing and not allowance.refusal(pool):
            allowance.grant(pool)
            granted += 1
        for slot in islice(slot_ids(pool, view, set(process.in_flight)), granted):
            process.in_flight.append(slot)
            self.requests.append((process, slot))

    def arrive(self, _, number):
        if self.requests:
            process, slot = self.requests.pop(number % len(self.requests))
            self.claims.setdefault(f"default-{name_suffix(slot)}", False)
            if slot in process.in_flight:  # the answer, whatever it is
                process.in_flight.remove(slot)

    def delete(self, _, number):
        if self.claims:
            self.claims[sorted(self.claims)[number % len(self.claims)]] = True

    def remove(self, _, number):
        gone = sorted(name for name, deleting in self.claims.items() if deleting)
        if gone:
            del self.claims[gone[number % len(gone)]]

    def scale(self, _, number):
        self.replicas = number


@with_examples(400)
@given(st.integers(0, 5), st.randoms(use_true_random=False))
def test_processes_with_old_views_stay_within_the_limit(limit, random):
    """After every step, with restarts and with requests that arrive late."""
    cluster = Cluster(limit)
    for step in random.choices([*CHANCES], [*CHANCES.values()], k=PASSES):
        getattr(cluster, step)(random.choice(cluster.processes), random.randrange(10))
        assert len(cluster.claims) <= limit
