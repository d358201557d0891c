"""AWS, Alibaba Cloud and Azure in one process: a NodePool each, prices in two currencies."""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from karpenter_core.cli.demo.demo_kubelets import DemoKubelets, find_simulated_cloud
from karpenter_core.cli.demo.demo_manifests import find_node_class
from karpenter_core.kube.api import KubeApi
from karpenter_core.kube.client import connect
from karpenter_core.kube.resources import custom_kind
from karpenter_core.operator.clock import SystemClock
from karpenter_core.testing.scenarios import (
    CountBounds,
    Expectation,
    ExpectedPods,
    ScenarioDeployment,
    ScenarioNodePool,
)
from tests.e2e.kwok import KwokCloud
from tests.support.processes import wait_until
from tests.support.runner import ScenarioWorld

if TYPE_CHECKING:
    from tests.support.local_clusters import LocalCluster

CRDS = tuple(sorted((Path(__file__).parents[2] / "crds").glob("*.yaml")))
CLOUDS = ("aws", "alibabacloud", "azure")
POOL = "example.com/cloud"

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]


async def test_three_clouds_serve_a_pool_each(embedded_local_cluster: LocalCluster, tmp_path: Path):
    models = {name: find_node_class(name) for name in CLOUDS}
    with ExitStack() as open_clouds:
        clouds = {name: open_clouds.enter_context(find_simulated_cloud(name)) for name in CLOUDS}
        for cloud in clouds.values():
            for name, value in cloud.environment.items():
                open_clouds.callback(restore, name, os.environ.get(name))
                os.environ[name] = value
        async with AsyncExitStack() as stack:
            kinds = [custom_kind(model.resource) for model in models.values()]
            world = await stack.enter_async_context(
                ScenarioWorld(embedded_local_cluster, KwokCloud(), tmp_path, crds=CRDS, kinds=kinds)
            )
            await register_instances(stack, embedded_local_cluster, clouds.values())
            for name, model in models.items():
                await world.create(node_class(model, clouds[name].node_class_spec))
                await world.create(pool(name, model).manifest())
                await world.create(deployment(name).manifest())
            controller = world.add_controller(options={"providers": ",".join(("kwok", *CLOUDS))})
            await controller.start()

            await world.expect(
                Expectation(
                    within=timedelta(seconds=90),
                    pods=ExpectedPods(running=CountBounds(at_least=9, at_most=9)),
                    nodes=CountBounds(at_least=3),
                )
            )

            # Pods that arrive late may be given a node of their own, and run elsewhere before it joins.
            async def all_joined():
                return node_ids(world) == set().union(*bought(clouds).values())

            await wait_until(all_joined, seconds=60)
            assert all(bought(clouds).values())
            shown = await metrics(controller.metrics_url)
            for name, cloud in clouds.items():
                types = {instance.offering.instance_type for instance in cloud.instances().values()}
                assert all(
                    f'instance_type="{instance_type}"' in shown for instance_type in types
                ), name
            for name in CLOUDS:
                await world.scale(f"on-{name}", 0)
            await world.expect(
                Expectation(within=timedelta(seconds=90), nothing_left=True), where="the end"
            )
            assert [cloud.instances() for cloud in clouds.values()] == [{}, {}, {}]


def bought(clouds):
    return {name: set(cloud.instances()) for name, cloud in clouds.items()}


def node_ids(world):
    return {node["spec"]["providerID"] for node in world.observe().nodes}


def node_class(model, spec):
    return {
        "apiVersion": model.resource.api_version,
        "kind": model.resource.kind,
        "metadata": {"name": "default"},
        "spec": dict(spec),
    }


def pool(name, model):
    return ScenarioNodePool(
        name=name,
        labels={POOL: name},
        node_class_group=model.resource.group,
        node_class_kind=model.resource.kind,
    )


def deployment(name):
    return ScenarioDeployment(
        name=f"on-{name}", replicas=3, cpu="1", memory="1Gi", pod={"nodeSelector": {POOL: name}}
    )


async def register_instances(stack, local_cluster, clouds):
    """Do for all clouds what kubelets and the clouds' controllers do."""
    clock = SystemClock()
    transport = await connect(kubeconfig=str(local_cluster.kubeconfig), clock=clock)
    api = KubeApi(transport, clock=clock)
    stack.push_async_callback(api.close)
    for cloud in clouds:
        task = asyncio.create_task(DemoKubelets(cloud, api).run())
        stack.push_async_callback(end, task)


async def end(task):
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def metrics(url):
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


def restore(name, value):
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
