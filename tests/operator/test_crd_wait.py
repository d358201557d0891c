"""The process waits for its CustomResourceDefinitions before it works."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint

import pytest
from structlog.testing import capture_logs

from karpenter_core.controllers.planner import InlinePlanner
from karpenter_core.errors import NotFoundError
from karpenter_core.kube.resources import DEVICE_KINDS
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.operator.clock import random_id
from karpenter_core.operator.crd_wait import CrdWaiter
from karpenter_core.operator.process import Process
from karpenter_core.operator.process_platform import ProcessPlatform
from karpenter_core.operator.settings_loader import load_settings, selected_plugins
from karpenter_core.provider.host.executor import InlineExecutor
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.sim.virtual_time import LoopClock, run_virtual

INSTALLED = [
    EntryPoint("kwok", "karpenter_provider_kwok.plugin:KwokProvider", "karpenter"),
    EntryPoint("aws", "karpenter_provider_aws.plugin:AwsProvider", "karpenter"),
]


class WithoutDefinitions:
    """An API server on which nothing of Karpenter is installed."""

    async def request(self, request):
        await asyncio.sleep(0)
        return ApiResponse(status=404, body=b"404 page not found")

    async def close(self):
        pass


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("kwok", {"kwoknodeclasses.karpenter.kwok.sh"}),
        ("", {"kwoknodeclasses.karpenter.kwok.sh", "ec2nodeclasses.karpenter.k8s.aws"}),
    ],
)
def test_the_definitions_of_loaded_providers_alone_are_waited_for(tmp_path, chosen, expected):
    """One image holds all clouds, and a cluster the kinds of one."""

    async def scenario():
        environment = {"PROVIDERS": chosen} if chosen else {}
        selected = selected_plugins((), environment)
        plugins = load_plugins(selected=selected, entry_points=INSTALLED)
        specs = [spec for specs in plugins.settings().values() for spec in specs]
        server = WithoutDefinitions()
        ports = ProcessPlatform(
            clock=LoopClock(),
            new_id=random_id,
            executor=InlineExecutor(),
            planner=InlinePlanner(),
            background=InlinePlanner(),
            objects=server,
            lease=server,
            identity="test",
            cache_folder=tmp_path,
            serves_http=False,
        )
        process = Process(load_settings((), environment, plugin_options=specs), plugins, ports)
        with capture_logs() as lines:
            waiting = asyncio.ensure_future(process._crds.run())
            await asyncio.sleep(30)
            waiting.cancel()
        [line] = [line for line in lines if line["log_level"] == "warning"]
        names = line["event"].partition("not installed: ")[2].partition(";")[0].split(", ")
        assert set(names) == {"nodepools.karpenter.sh", "nodeclaims.karpenter.sh", *expected}

    run_virtual(scenario())


class WithoutDevices:
    """API servers of a Kubernetes that does not serve devices."""

    def api_for(self, kind):
        return self

    async def list_page(self, kind, *, limit):
        await asyncio.sleep(0)
        if kind in DEVICE_KINDS:
            raise NotFoundError("404 page not found", status=404)


def test_an_api_server_without_devices_is_named_with_the_option_that_needs_them():
    async def scenario():
        waiter = CrdWaiter(
            WithoutDevices(), (NODE_POOLS,), device_kinds=DEVICE_KINDS, clock=LoopClock()
        )
        waiting = asyncio.ensure_future(waiter.run())
        await asyncio.sleep(3)
        waiting.cancel()
        assert "resourceclaims.resource.k8s.io" in waiter.problem
        assert "--ignore-dra-requests=false" in waiter.problem

    run_virtual(scenario())


def test_an_api_server_without_devices_does_unless_they_are_allocated():
    async def scenario():
        waiter = CrdWaiter(WithoutDevices(), (NODE_POOLS,), clock=LoopClock())
        await waiter.run()
        assert waiter.problem is None

    run_virtual(scenario())
