"""A command line becomes a process that serves a cluster over HTTP."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys

import pytest

from karpenter_core.api.crd import core_models, render_crd
from karpenter_core.errors import SettingsError
from karpenter_core.kube.resources import PODS
from karpenter_core.operator import launcher
from karpenter_core.operator.launcher import load_process, own_namespace, run_from_command_line
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool
from tests.support.processes import free_ports

ENVIRONMENT = {"PROVIDERS": "kwok"}


async def test_a_process_places_pods_and_ends_on_sigterm_with_code_0(tmp_path):
    """Real connections, threads and signals: what simulated time replaces."""
    metrics, probes = free_ports(2)
    kubeconfig = tmp_path / "kubeconfig"
    running = asyncio.Event()
    async with EmbeddedCluster(http=True, kubeconfig=kubeconfig) as cluster:
        cluster.apply([render_crd(model) for model in (*core_models(), KWOKNodeClass)])
        cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])

        def note(change):
            if change.stored.obj["status"].get("phase") == "Running":
                running.set()

        cluster.server.registry.store.listen(PODS, note)
        arguments = [
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--metrics-port={metrics}",
            f"--health-probe-port={probes}",
            f"--cache-folder={tmp_path / 'cache'}",
            "--disable-leader-election",
        ]
        process = asyncio.create_task(run_from_command_line(arguments, ENVIRONMENT))
        seen = asyncio.create_task(running.wait())
        await asyncio.wait({process, seen}, return_when=asyncio.FIRST_COMPLETED)
        assert not process.done() or process.result()
        assert gc.get_freeze_count() > 10_000, "what lives after the first lists stays"
        os.kill(os.getpid(), signal.SIGTERM)

        assert await process == 0
        seen.cancel()
        assert running.is_set()
        assert gc.get_freeze_count() == 0
    assert (tmp_path / "cache").is_dir()


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path):
    """With the reason, as it is about a setting."""
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache"
    _, settings = load_process([f"--cache-folder={folder}"], ENVIRONMENT)
    with pytest.raises(SettingsError, match=f"cache-folder: cannot make {folder}: Not a dir"):
        launcher._cache_folder(settings)


def test_a_cache_folder_without_a_home_folder_is_named():
    """As for an arbitrary user ID in a container."""
    _, settings = load_process(["--cache-folder=~nobody-of-this-name/cache"], ENVIRONMENT)
    with pytest.raises(SettingsError, match=r"cache-folder: .*~nobody-of-this-name/cache.*home"):
        launcher._cache_folder(settings)


def test_a_second_interrupt_ends_the_process_at_once():
    """Whatever holds up the end that the first one asked for."""
    program = """
import asyncio, os, signal
from karpenter_core.operator.launcher import stop_on_signals

async def run():
    stop = asyncio.Event()
    stop_on_signals(stop)
    os.kill(os.getpid(), signal.SIGINT)
    await stop.wait()
    print("stopping", flush=True)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(20)
    finally:
        await asyncio.sleep(20)

asyncio.run(run())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=15, check=False
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGINT, "stopping\n")


def test_plugins_bring_their_own_settings():
    """Those of the plug-ins that are selected alone."""
    plugins, _ = load_process(["--kwok-registration-delay=7s"], ENVIRONMENT)
    assert plugins.names == ("kwok",)


def test_the_namespace_of_the_lease_is_that_of_the_process():
    assert own_namespace({"SYSTEM_NAMESPACE": "karpenter"}) == "karpenter"
    assert own_namespace({}) == "kube-system"
