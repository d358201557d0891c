"""`karpenter explain pod` covers every outcome of a pod, with a reason per pool."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest
from rich.console import Console

from karpenter_core.cli.explain import tables
from karpenter_core.cli.explain.pod import _REMEDIES
from karpenter_core.scheduling.problem import PoolConstraint
from tests.cli.explain_failures import needs, only
from tests.cli.inputs import POOL, node, pod, pool, write

DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "agent"}
ARM = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
TAINT = {"key": "dedicated", "effect": "NoSchedule"}


@pytest.fixture
def cluster(tmp_path):
    """Four pools, a node with a pod, and pods of every fate."""
    going = node("going", cpu="4")
    going["metadata"]["deletionTimestamp"] = "2024-01-31T12:00:00Z"
    missing = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    claim = {
        "metadata": {"name": "limited-1", "labels": {"karpenter.sh/nodepool": "limited"}},
        "spec": {
            "nodeClassRef": POOL["spec"]["template"]["spec"]["nodeClassRef"],
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["large"]}
            ],
            "resources": {"requests": {"cpu": "10"}},
        },
    }
    return write(
        tmp_path / "cluster.json",
        {
            "nodePools": [
                POOL,
                pool("limited", limits={"cpu": "1"}, weight=10),
                pool("tainted", template={"taints": [TAINT]}, weight=5),
                pool("static", replicas=1),
            ],
            "nodeClaims": [claim],
            "nodes": [node("old"), going],
            "boundPods": [pod("runs", cpu="300m", nodeName="old"), pod("moves", cpu="3", nodeName="going")],
            "pods": [
                pod("fits", cpu="600m"),
                pod("waits", cpu="15"),
                pod("new", cpu="3500m"),
                pod("huge", cpu="100"),
                pod("arm", nodeSelector={"kubernetes.io/arch": "arm64"}),
                pod("gated", schedulingGates=[{"name": "example.com/hold"}]),
                pod("volume", volumes=missing),
                {**pod("done"), "status": {"phase": "Succeeded"}},
                {**pod("nominated", cpu="50m"), "status": {"nominatedNodeName": "old"}},
                pod("ending", metadata={"deletionTimestamp": "2024-01-31T12:00:00Z"}),
                pod("daemon", metadata={"ownerReferences": [DAEMON_SET]}),
                pod("web-5d8f-a", cpu="100"),
                pod("device", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]),
                pod("web-5d8f-b", cpu="100"),
            ],
        },
    )  # fmt: skip


@pytest.fixture
def explain(program, cluster, types_file):
    """Explain a pod of that cluster."""

    def run(name, *options, code=0):
        return program(
            "explain", "pod", name, "--offline", cluster, "--instance-types-file", types_file,
            *options, code=code,
        )  # fmt: skip

    return run


@pytest.fixture
def answer(explain):
    return lambda name: json.loads(explain(name, "-o", "json").out)


def test_a_pod_that_fits_nowhere_has_a_reason_in_every_pool(answer):
    """The first constraint that fails, what comes closest, and what would help."""
    explanation = answer("shop/huge")

    assert set(explanation) == {
        "pod", "state", "answer", "message", "placement", "pools", "unusablePools",
    }  # fmt: skip
    assert (explanation["pod"], explanation["state"], explanation["placement"]) == (
        "shop/huge", "unschedulable", None,
    )  # fmt: skip
    assert {name: pool["constraint"] for name, pool in explanation["pools"].items()} == {
        "general": "resource", "limited": "resource", "tainted": "taint",
    }  # fmt: skip
    general = explanation["pools"]["general"]
    assert general["closest"] == "large"
    assert "cpu" in general["remedy"]
    assert all(pool["remedy"] and not pool["fits"] for pool in explanation["pools"].values())
    assert list(explanation["unusablePools"]) == ["static"]


def test_a_pod_that_needs_a_launch_shows_its_node_and_the_other_pools(answer):
    """The answer names the pool, and why no heavier one takes the pod."""
    explanation = answer("shop/new")

    assert explanation["state"] == "launch"
    assert explanation["placement"]["nodePool"] == "general"
    assert explanation["placement"]["instanceTypes"][0] == "medium"
    pools = explanation["pools"]
    assert pools["general"]["fits"]
    assert pools["general"]["cheapest"] == explanation["placement"]["cheapest"]
    assert (pools["limited"]["constraint"], pools["tainted"]["constraint"]) == ("limit", "taint")


@pytest.mark.parametrize(
    ("name", "state", "said"),
    [
        ("fits", "existing", 'node "old" has room for it'),
        ("waits", "existing", 'it waits for NodeClaim "limited-1", which has no instance yet'),
        ("runs", "bound", 'it is on node "old"'),
        ("moves", "launch", 'its node "going" is being removed; a node of NodePool "general"'),
        ("gated", "held", "held by scheduling gates: example.com/hold"),
        ("done", "ended", "it has finished (Succeeded)"),
        ("ending", "ended", "it is being deleted"),
        ("nominated", "existing", 'node "old" is kept for it (status.nominatedNodeName)'),
        ("daemon", "held", "a DaemonSet's pod belongs to one node; none is launched for it"),
        ("arm", "unschedulable", "kubernetes.io/arch"),
    ],
)
def test_every_pod_has_a_state_and_a_reason(answer, name, state, said):
    """In every outcome."""
    explanation = answer(f"shop/{name}")

    assert explanation["state"] == state
    assert said in explanation["message"]


def test_a_pod_whose_volume_is_missing_is_kept_out_by_that(answer):
    """Not by what its pools would say next."""
    explanation = answer("shop/volume")

    assert explanation["state"] == "unschedulable"
    assert {pool["constraint"] for pool in explanation["pools"].values()} == {"volume"}
    assert 'persistentvolumeclaim "shop/data" not found' in explanation["message"]


def test_a_reason_that_holds_in_all_pools_blames_none(answer):
    """A claim that is missing is no fault of the first NodePool by name."""
    assert answer("shop/volume")["answer"].startswith("shop/volume: stays pending: volume: ")
    assert answer("shop/volume")["answer"].endswith("(in all NodePools)")


def test_resource_claims_are_the_reason_of_an_unschedulable_pod(answer):
    """Asking for less would not help it."""
    explanation = answer("shop/device")

    assert explanation["state"] == "unschedulable"
    assert explanation["pools"]["general"]["remedy"] == (
        "remove the resource claims from the pod, or set --ignore-dra-requests=false"
    )


def test_people_are_shown_verdict_closest_type_and_remedy(explain, monkeypatch):
    """One block for all pools of which the same is to be said."""
    monkeypatch.setenv("COLUMNS", "120")
    head, *blocks = explain("shop/huge").out.split("\n\n")

    assert head.startswith('shop/huge: stays pending: NodePool "general": resource: ')
    assert head.endswith("(2 other NodePools below)")
    assert [block.splitlines()[0] for block in blocks] == ["limited, general", "tainted", "static"]
    assert blocks[0].splitlines()[2] == "  closest: large"
    assert blocks[1].splitlines()[1:] == [
        '  taint: did not tolerate taint "dedicated:NoSchedule"',
        '  would help: add a toleration for "dedicated:NoSchedule"',
    ]
    assert blocks[2].splitlines()[1].startswith("  not used: it is static")


def test_on_a_terminal_all_lines_fit_and_elsewhere_the_answer_is_one_line(explain, monkeypatch):
    """A terminal breaks long lines within words."""
    answer = explain("shop/huge").out.splitlines()[0]
    terminal = partial(Console, force_terminal=True, width=80)
    monkeypatch.setattr(tables, "Console", terminal)

    shown = re.sub(r"\x1b\[[\d;]*m", "", explain("shop/huge").out)

    assert len(answer) > 80
    assert max(map(len, shown.splitlines())) <= 80
    assert " ".join(shown.split()).startswith(answer)


def test_people_are_shown_which_pool_takes_a_pod(explain):
    """And what the others would cost, or why they are none."""
    shown = explain("shop/new").out

    assert "general\n  takes it: medium z1 on-demand at 0.1800 per hour" in shown
    assert "limited\n  limit: " in shown


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shop/hugee", 'no pod "shop/hugee"; near: shop/huge'),
        ("huge", 'no pod "default/huge"; near: shop/huge'),
        (
            "shop/zzzzzz",
            'no pod "shop/zzzzzz"; pods there: arm, daemon, device, done, ending and 11 more',
        ),
        ("shop/web", 'no pod "shop/web"; near: shop/web-5d8f-a, shop/web-5d8f-b'),
        ("bazaar/zzzzzz", 'no pod "bazaar/zzzzzz"; namespaces with pods: shop'),
    ],
)
def test_an_unknown_pod_is_refused_with_those_that_may_be_meant(explain, name, said):
    """Exit code 2, one line."""
    shown = explain(name, code=2)

    assert shown.err.strip() == f"karpenter: {said}"


def test_the_namespace_of_a_pod_is_an_option_too(explain):
    by_option = explain("new", "-n", "shop").out

    assert by_option == explain("shop/new").out == explain("shop/new", "--namespace=shop").out
    shown = explain("shop/new", "--namespace", "bazaar", code=2)
    assert shown.err.strip() == 'karpenter: the pod "shop/new" is not in the namespace "bazaar"'


def test_without_a_usable_pool_each_pool_says_why(program, tmp_path, types_file):
    """A pod cannot wait for a pool that nothing is bought from."""
    file = write(tmp_path / "static.yaml", pool("static", replicas=1), pod("a"))
    arguments = ("--offline", file, "--instance-types-file", types_file, "-o", "json")

    document = json.loads(program("explain", "pod", "shop/a", *arguments).out)

    assert document["state"] == "unschedulable"
    assert 'NodePool "static": it is static' in document["message"]


@pytest.mark.parametrize("by_affinity", [False, True])
def test_a_pool_that_the_pod_asks_for_and_that_cannot_be_used_is_the_first_cause(
    program, tmp_path, types_file, by_affinity
):
    """Other NodePools are not to blame for it."""
    lost = pool("lost", replicas=1)
    asks = needs("karpenter.sh/nodepool", "In", "lost") if by_affinity else only("lost")
    file = write(tmp_path / "cluster.yaml", POOL, lost, pod("a", **asks))
    arguments = ("--offline", file, "--instance-types-file", types_file, "-o", "json")

    document = json.loads(program("explain", "pod", "shop/a", *arguments).out)

    assert document["state"] == "unschedulable"
    reason = document["unusablePools"]["lost"]
    assert f'NodePool "lost" is not used: {reason}' in document["answer"]


def test_a_pool_that_can_launch_nothing_is_not_the_first_cause_of_a_pod(
    program, tmp_path, types_file
):
    """A pod that is too large for a pool in use is not told that another one is used up."""
    none = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["unknown"]}
    nothing = pool("nothing", template={"requirements": [none]})
    file = write(tmp_path / "cluster.yaml", POOL, nothing, pod("a", cpu="100"))
    arguments = ("--offline", file, "--instance-types-file", types_file, "-o", "json")

    document = json.loads(program("explain", "pod", "shop/a", *arguments).out)

    assert 'NodePool "general": resource: ' in document["answer"]
    assert document["pools"]["nothing"]["constraint"] in {"requirement", "offering"}


def test_every_constraint_has_a_general_remedy():
    """A constraint without one would end the command."""
    assert set(_REMEDIES) == set(PoolConstraint)
