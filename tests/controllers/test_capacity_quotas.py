"""CapacityQuotas and limits of the price hold in a whole controller."""

from __future__ import annotations

from karpenter_core.controllers.capacity_quota.controller import PERIOD_SECONDS
from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.kube.wire.codecs import CAPACITY_QUOTAS, NODE_POOLS
from karpenter_core.sim.faults import RequestFault, matching
from tests.controllers.test_launch_limits import KEEP, most, one_to_a_node
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller
from tests.support.capacity_quotas import DEFINITION, capacity_quota

ARGUMENTS = ("--disable-leader-election", "--capacity-quotas")
HELD = "karpenter_nodeclaims_held_back_total"


def reconciled(scene, name="team"):
    """Return the status of a quota and its condition Reconciled."""
    quotas = {each["metadata"]["name"]: each for each in scene.cluster.list(CAPACITY_QUOTAS)}
    status = quotas[name].get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    return status, conditions.get("Reconciled", {})


def is_reconciled(scene, name="team"):
    return reconciled(scene, name)[1].get("status") == "True"


def scheduling_failures(scene):
    return [event["message"] for event in scene.events("FailedScheduling")]


def test_nodes_of_all_pools_keep_within_a_quota(tmp_path):
    """Status, metrics, Events of quota and pods say so; a raised limit is used at once."""

    async def scenario(scene):
        scene.cluster.apply([DEFINITION])
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool("blue", disruption=KEEP),
                node_pool("green", disruption=KEEP, weight=10),
                capacity_quota(nodes="2", cpu="100"),
                one_to_a_node(5),
            ]
        )
        running = scene.start(*ARGUMENTS)
        assert await most(scene, 60) == 2
        assert len(scene.pods("Running")) == 2
        assert any(
            'nodes: 0 of 2 left in CapacityQuota "team"' in message
            for message in scheduling_failures(scene)
        )
        (event,) = scene.events("LimitReached")
        assert event["message"].startswith("the limit is used up (nodes: 2 of 2)")
        status, condition = reconciled(scene)
        assert (status["used"]["resources"]["nodes"], condition["status"]) == ("2", "True")
        labels = '{capacityquota="team",resource_type="nodes"}'
        assert running.metric(f"karpenter_capacityquotas_usage{labels}") == 2
        assert running.metric(f"karpenter_capacityquotas_limit{labels}") == 2

        scene.cluster.apply([capacity_quota(nodes="4", cpu="100")])
        assert await most(scene, 60) == 4

    run_controller(tmp_path, scenario)


def test_an_unreadable_quota_refuses_only_pools_that_it_may_count(tmp_path):
    """The API server without the schema of newer selectors lets it through."""
    broken = capacity_quota(
        selector={
            "matchLabels": {"karpenter.sh/nodepool": "green"},
            "matchExpressions": [{"key": "tier", "operator": "Like", "values": ["x"]}],
        },
        nodes="100",
    )

    async def scenario(scene):
        scene.cluster.apply([DEFINITION])
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool("blue", disruption=KEEP),
                node_pool("green", disruption=KEEP, weight=10),
                broken,
                one_to_a_node(2),
            ]
        )
        scene.start(*ARGUMENTS)
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        pools = {claim["metadata"]["labels"]["karpenter.sh/nodepool"] for claim in scene.claims()}
        assert pools == {"blue"}
        _, condition = reconciled(scene)
        assert condition["status"] == "False"
        assert "operator must be one of In, NotIn, Exists, DoesNotExist" in condition["message"]
        assert len(scene.events("QuotaUnreadable")) == 1

    run_controller(tmp_path, scenario)


def test_quotas_without_their_definition_are_reported_once_and_change_nothing(tmp_path, caplog):
    """The setting is on, and the cluster has no such kind."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), one_to_a_node(2)])
        running = scene.start(*ARGUMENTS)
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        assert running.is_alive

    run_controller(tmp_path, scenario)


def test_a_quota_below_the_usage_keeps_the_nodes_and_refuses_replacements_in_peace(tmp_path):
    """Drift needs a node more for a while: it waits, with the old nodes in use, until there is room."""

    async def scenario(scene):
        drifting = {**KEEP, "budgets": [{"nodes": "100%"}]}
        scene.cluster.apply([DEFINITION])
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool(disruption=drifting),
                capacity_quota(nodes="9"),
                one_to_a_node(3),
            ]
        )
        scene.start(*ARGUMENTS)
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=60)
        before = {claim["metadata"]["name"] for claim in scene.claims()}
        scene.cluster.apply([capacity_quota(nodes="2")])
        changed = {"spec": {"template": {"metadata": {"labels": {"generation": "2"}}}}}
        scene.cluster.patch(NODE_POOLS, "general", changed)
        for _ in range(90):
            await scene.cluster.clock.sleep(10)
            assert {claim["metadata"]["name"] for claim in scene.claims()} == before
        assert len(scene.pods("Running")) == 3
        assert not any(
            taint["key"] == "karpenter.sh/disrupted"
            for node in scene.nodes()
            for taint in node["spec"].get("taints", ())
        )
        scene.cluster.apply([capacity_quota(nodes="4")])
        await scene.settle(
            lambda: (
                len(scene.pods("Running")) == 3
                and not before & {claim["metadata"]["name"] for claim in scene.claims()}
            ),
            seconds=1800,
        )
        assert await most(scene, 300) == 3

    run_controller(tmp_path, scenario)


def test_a_status_that_somebody_else_has_just_written_is_written_at_once_again(tmp_path):
    """The conflict says that the quota was read too early; the next pass is ten seconds away."""

    async def scenario(scene):
        scene.cluster.apply([DEFINITION])
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), capacity_quota(nodes="2")])
        fault = RequestFault(matches=matching("PATCH", "capacityquotas/team"), status=409)
        scene.cluster.frontend.faults.add(fault)
        scene.start(*ARGUMENTS)
        await scene.settle(lambda: bool(scene.cluster.frontend.faults.hits), seconds=PERIOD_SECONDS)
        await scene.settle(lambda: is_reconciled(scene), seconds=5)

    run_controller(tmp_path, scenario)


def test_a_new_or_changed_quota_has_its_status_at_once(tmp_path):
    """Whoever applies it need not wait for the next pass, whenever that is."""

    async def scenario(scene):
        scene.cluster.apply([DEFINITION, NODE_CLASS, node_pool(disruption=KEEP)])
        scene.start(*ARGUMENTS)
        await scene.cluster.clock.sleep(PERIOD_SECONDS)
        for number in range(4):
            name = f"team-{number}"
            scene.cluster.apply([capacity_quota(name, nodes="2")])
            await scene.settle(lambda name=name: is_reconciled(scene, name), seconds=2)
            await scene.cluster.clock.sleep(1)

    run_controller(tmp_path, scenario)


def test_a_quota_that_is_deleted_limits_nothing_any_more(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([DEFINITION])
        scene.cluster.apply(
            [NODE_CLASS, node_pool(disruption=KEEP), capacity_quota(nodes="1"), one_to_a_node(3)]
        )
        running = scene.start(*ARGUMENTS)
        assert await most(scene, 60) == 1
        scene.cluster.delete(CAPACITY_QUOTAS, "team")
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=90)
        await scene.cluster.clock.sleep(20)
        series = 'karpenter_capacityquotas_limit{capacityquota="team",resource_type="nodes"}'
        assert not running.metric(series)

    run_controller(tmp_path, scenario)


def test_the_price_of_a_pool_keeps_within_its_limit(tmp_path):
    """Nothing is removed when the limit is lowered below what there is."""

    def limited(price):
        return node_pool(disruption=KEEP, limits={"karpenter.sh/price-per-hour": price})

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, limited("0.2"), one_to_a_node(40)])
        running = scene.start("--disable-leader-election")
        await scene.settle(lambda: len(scene.pods("Running")) > 1, seconds=60)
        peak = await most(scene, 60)
        labels = '{nodepool="general",resource_type="karpenter_sh_price_per_hour"}'
        usage = running.metric(f"karpenter_nodepools_usage{labels}")
        assert 0.1 < usage <= 0.2
        assert running.metric(f"karpenter_nodepools_limit{labels}") == 0.2
        assert any(
            "karpenter.sh/price-per-hour: " in message for message in scheduling_failures(scene)
        )

        scene.cluster.apply([limited("0.01")])
        scene.cluster.scale(DEPLOYMENTS, "web", 41)
        assert await most(scene, 60) == peak

    run_controller(tmp_path, scenario)


def test_pods_below_the_cutoff_fill_nodes_and_launch_none(tmp_path):
    """They wait with the reason until there is room, and a node with them alone is removed."""
    pool = node_pool(
        disruption={
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "0s",
            "budgets": [{"nodes": "100%"}],
        }
    )

    async def scenario(scene):
        filler = deployment("filler", 1, cpu="100m", memory="10Mi", priority=-10)
        scene.cluster.apply([NODE_CLASS, pool, filler])
        running = scene.start("--disable-leader-election", "--priority-cutoff=0")
        await scene.cluster.clock.sleep(60)
        assert (scene.claims(), running.metric("karpenter_scheduler_expendable_pods_count")) == (
            [],
            1,
        )
        assert any(
            "its priority -10 is below 0 (--priority-cutoff)" in message
            for message in scheduling_failures(scene)
        )
        scene.cluster.apply([one_to_a_node(1)])
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        assert len(scene.claims()) == 1

        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes(), seconds=300)
        assert len(scene.pods("Pending")) == 1

    run_controller(tmp_path, scenario)


def test_nodes_of_a_pool_have_its_share_of_spot(tmp_path):
    """Also over several scale-ups."""
    pool = node_pool(disruption=KEEP, template={"requirements": []})
    pool["metadata"]["annotations"] = {"karpenter.sh/spot-share": "50%"}

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, pool, one_to_a_node(3)])
        running = scene.start("--disable-leader-election")
        for replicas in (3, 4, 8):
            scene.cluster.scale(DEPLOYMENTS, "web", replicas)
            await scene.settle(lambda n=replicas: len(scene.pods("Running")) == n, seconds=60)
            kinds = [
                node["metadata"]["labels"]["karpenter.sh/capacity-type"] for node in scene.nodes()
            ]
            assert abs(kinds.count("spot") - len(kinds) / 2) <= 1
        assert len(kinds) == 8
        await scene.cluster.clock.sleep(20)
        series = 'karpenter_nodepools_spot_share{kind="%s",nodepool="general"}'
        assert running.metric(series % "desired") == 0.5
        assert running.metric(series % "actual") == kinds.count("spot") / 8

    run_controller(tmp_path, scenario)
