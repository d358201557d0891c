"""Commands beside an unchanged controller name the reason for which it launches no node.

Each cause arises in a whole controller on an embedded cluster, in simulated time.
"""

from __future__ import annotations

import json

import pytest

from karpenter_core.cli.top.view import PendingState
from tests.cli.live_reading import read_live
from tests.controllers.test_launch_limits import KEEP, one_to_a_node
from tests.controllers.test_schedules import scheduled, window_in
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller
from tests.support.capacity_quotas import DEFINITION, capacity_quota

ALONE = "--disable-leader-election"


class LiveCause:
    """A cluster in which pods wait for one reason.

    `says` are parts of what every command says of a waiting pod and the Event on it; `of_pool` is a part of
    what `explain nodepool` says, and the state that it names.
    """

    def __init__(self, *objects, says, of_pool, arguments=(), faults=(), seconds=90):
        self.objects = objects
        self.says = says
        self.of_pool = of_pool
        self.arguments = (ALONE, *arguments)
        self.faults = faults
        self.seconds = seconds

    def manifests(self, scene):
        return [each(scene) if callable(each) else each for each in self.objects]


def kept(**spec):
    return node_pool(disruption=KEEP, **spec)


def in_window(minutes, **changes):
    """A pool with a window that opens after some minutes."""
    return lambda scene: scheduled(
        kept(), window_in(scene, minutes, "60m", name="night", **changes)
    )


WEB = deployment("web", 1)
CAUSES = {
    "quota": LiveCause(
        NODE_CLASS, kept(), capacity_quota(nodes="2", cpu="100"), one_to_a_node(4),
        arguments=("--capacity-quotas",),
        says=("limit: ", 'nodes: 0 of 2 left in CapacityQuota "team"'),
        of_pool=("limited", 'nodes of CapacityQuota "team" is used up: 2 of 2'),
    ),
    "limit": LiveCause(
        NODE_CLASS, kept(limits={"cpu": "2"}), one_to_a_node(4),
        says=("limit: ", "cpu: 0 of 2 left"),
        of_pool=("limited", "cpu is used up: 2 of 2"),
    ),
    "price": LiveCause(
        NODE_CLASS, kept(limits={"karpenter.sh/price-per-hour": "0.05"}), one_to_a_node(4),
        says=("limit: ", "karpenter.sh/price-per-hour: 0.00359 of 0.05 left"),
        of_pool=("limited", "karpenter.sh/price-per-hour has 0.00359 left"),
    ),
    "limit-of-a-window": LiveCause(
        NODE_CLASS, in_window(0, limits={"nodes": "1"}), one_to_a_node(3),
        says=("limit: ", "nodes: 1 allowed"), seconds=150,
        of_pool=("limited", "nodes is used up: 1 of 1"),
    ),
    "shutdown": LiveCause(
        NODE_CLASS, in_window(1, shutdown=True), deployment("web", 2), seconds=240,
        says=('nodepool "general" is shut down by window "night"', "until 2030-01-01T01:01:00Z"),
        of_pool=("unusable", 'shut down by window "night"'),
    ),
    "cutoff": LiveCause(
        NODE_CLASS, node_pool(), deployment("web", 1, priority=-10), arguments=("--priority-cutoff=0",),
        says=("no node is launched for the pod: its priority -10 is below 0 (--priority-cutoff)",),
        of_pool=("open", "no pod needs one of it"),
    ),
    "stock-out": LiveCause(
        NODE_CLASS, node_pool(), WEB, faults=[{"fault": "stock-out"}], seconds=240,
        says=("offering: no instance type has the required offering", "is sold out"),
        of_pool=("held-back", "is sold out"),
    ),
    "cloud-quota": LiveCause(
        NODE_CLASS, node_pool(), WEB, faults=[{"fault": "quota"}], seconds=240,
        says=("offering: no instance type has the required offering", "is sold out"),
        of_pool=("held-back", "is sold out"),
    ),
    "pause": LiveCause(
        NODE_CLASS, node_pool(template={"expireAfter": "30s"}), WEB, seconds=1800,
        arguments=("--kwok-registration-delay=90s",),
        says=('nodes of nodepool "general" in a row did not register in time', "one node is launched as a test at"),
        of_pool=("held-back", "in a row did not register in time"),
    ),
    "most-nodes": LiveCause(
        NODE_CLASS, kept(), one_to_a_node(4), arguments=("--max-nodes-total=2",),
        says=("(--max-nodes-total)",),
        of_pool=("unusable", "the cluster has the maximum of 2 nodes"),
    ),
    "launches-per-minute": LiveCause(
        NODE_CLASS, kept(), one_to_a_node(6), arguments=("--launches-per-minute=2",), seconds=20,
        says=("has reached its limit of 2 launch(es) per minute (--launches-per-minute)",),
        of_pool=("held-back", "has reached its limit of 2 launch(es) per minute"),
    ),
}  # fmt: skip


def last_refusal(scene, name):
    """Return the last Event about a pod that was not placed."""
    events = [
        event for event in scene.events("FailedScheduling") if event["involvedObject"]["name"] == name
    ]  # fmt: skip
    return events[-1]["message"]


@pytest.mark.parametrize("kind", CAUSES)
def test_commands_name_the_cause_of_the_controller(kind, tmp_path):
    """For each waiting pod: `explain pod`, `top`, `plan` and the Event; and `explain nodepool`."""
    cause = CAUSES[kind]
    faults = tmp_path / "faults.json"
    faults.write_text(json.dumps(cause.faults))
    arguments = (*cause.arguments, f"--kwok-faults-file={faults}")

    async def scenario(scene):
        scene.cluster.apply([DEFINITION])
        scene.cluster.apply(cause.manifests(scene))
        scene.start(*arguments)
        await scene.cluster.clock.sleep(cause.seconds)
        waiting = [
            pod["metadata"]["name"] for pod in scene.pods() if not pod["spec"].get("nodeName")
        ]
        answers = await read_live(scene, *arguments)

        assert waiting
        shown = {each.key: each for each in answers.top().pending}
        plan = answers.plan()
        for name in waiting:
            key = f"default/{name}"
            explained = answers.pod(key)
            assert explained["answer"].startswith(f"{key}: stays pending: ")
            assert shown[key].state is PendingState.UNSCHEDULABLE
            unplaced = plan["unschedulable"].get(key, {})
            planned = f"{unplaced.get('message')} {answers.refused_launches().get(key)}"
            said = (last_refusal(scene, name), explained["answer"], shown[key].message)
            for text in (*said, planned):
                assert all(part in text for part in cause.says), text
        pool = answers.node_pool("general")
        assert pool["state"] == cause.of_pool[0]
        assert cause.of_pool[1] in pool["answer"]

    run_controller(tmp_path, scenario)
