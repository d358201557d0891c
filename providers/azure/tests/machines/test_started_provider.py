"""AKS machines through the hooks of a started provider."""

from __future__ import annotations

import os

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.records import NodeView
from karpenter_core.errors import (
    CloudProviderError,
    NodeClaimNotFoundError,
    TerminationRefusedError,
)
from karpenter_core.provider.contract import ClusterFacts, ProviderContext, TerminationStatus
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.setting_specs import SETTINGS
from karpenter_provider_azure.started_provider import StartedProvider
from providers.azure.tests.instances.simulated_world import CloudClock


@pytest.fixture
def start(cloud, tmp_path):
    """Return what starts a process that manages machines."""
    started = []

    def run(**changes):
        settings = {
            spec.flag.removeprefix("--"): os.environ.get(spec.env, spec.default)
            for spec in SETTINGS
        }
        machines = {
            "manage-existing-aks-machines": True,
            "aks-machines-pool-name": cloud.world.machines_pool,
        }
        provider = StartedProvider(
            ProviderContext(
                settings={**settings, **machines, **changes},
                clock=CloudClock(cloud),
                cache_folder=tmp_path,
                metrics=CollectorRegistry(),
                cluster=ClusterFacts(name=cloud.world.cluster_name),
                nodes=None,
                read_nodes=dict,
                wake=lambda _name: None,
                read_claims=dict,
            )
        )
        started.append(provider)
        return provider

    yield run
    for each in started:
        each.close()


def test_an_aks_machine_is_launched_and_terminated_by_the_hooks(start, cloud):
    """Also in a process that did not know it before."""
    machine = cloud.create_aks_machine("web-1")
    cloud.time.advance(120)
    for _ in range(2):
        hooks = start().hooks
        (listed,) = hooks.list_instances().instances
        assert (listed.provider_id, listed.node_claim) == (machine, "web-1")
        assert hooks.fetch_instances([machine]) == [listed]

    assert hooks.terminate_instances([machine]) == [TerminationStatus.STARTED]
    cloud.time.advance(120)
    assert start().hooks.terminate_instances([machine]) == [TerminationStatus.GONE]
    (gone,) = hooks.fetch_instances([machine])
    assert isinstance(gone, NodeClaimNotFoundError)


@pytest.mark.parametrize(
    "changes", [{"manage-existing-aks-machines": False}, {"aks-machines-pool-name": "other"}]
)
def test_an_unmanaged_aks_machine_is_never_terminated_drifted_or_changed(start, cloud, changes):
    """Only the setting and the pool tell that it is a machine; its virtual machine has the tag."""
    machine = cloud.create_aks_machine("web-1")
    cloud.time.advance(120)
    provider = start(**changes)
    node_class = AKSNodeClass.model_validate(
        {"metadata": {"name": "default"}, "spec": {"tags": {"team": "web"}}}
    )
    provider.node_classes.note(node_class)
    claim = claim_of(machine)

    (found,) = provider.hooks.fetch_instances([machine])
    assert found.provider_id == machine
    for _ in range(2):
        (refused,) = provider.hooks.terminate_instances([machine])
        assert isinstance(refused, TerminationRefusedError)
        assert "set --manage-existing-aks-machines and --aks-machines-pool-name" in str(refused)
    (drift,) = provider.hooks.detect_drift([claim], node_class)
    assert isinstance(drift, CloudProviderError)
    provider.hooks.sync_instance(claim, NodeView(uid="u", name="node"))

    assert not cloud.calls.count("virtualMachines:delete")
    assert not cloud.calls.count("virtualMachines:patch")
    assert [each.name for each in cloud.living()] == [machine.rpartition("/")[2]]


def test_a_pool_that_does_not_exist_is_no_empty_pool(start, cloud):
    """Else its machines would count as gone, and their claims would be deleted."""
    cloud.create_aks_machine("web-1")
    hooks = start(**{"aks-machines-pool-name": "other"}).hooks
    listed = hooks.list_instances()
    assert not listed.complete
    assert '--aks-machines-pool-name "other": ' in listed.problem


def claim_of(provider_id):
    return NodeClaim.model_validate(
        {
            "metadata": {"name": "web-1", "uid": "u", "labels": {NODE_POOL: "web"}},
            "spec": {"nodeClassRef": {"kind": "AKSNodeClass", "name": "default", "group": "x"}},
            "status": {"providerID": provider_id},
        }
    )


@pytest.mark.parametrize("is_machine", [True, False])
def test_tags_of_machines_are_not_changed(start, cloud, is_machine):
    """A change of the virtual machine of a machine would be one behind the back of AKS."""
    provider = start()
    tags = {"karpenter.azure.com_cluster": cloud.world.cluster_name}
    made = (
        cloud.create_aks_machine("web-1") if is_machine else cloud.create_vm("aks-web-1", tags=tags)
    )
    cloud.time.advance(120)
    provider.hooks.list_instances()
    node_class = AKSNodeClass.model_validate(
        {"metadata": {"name": "default"}, "spec": {"tags": {"team": "web"}}}
    )
    provider.node_classes.note(node_class)
    claim = claim_of(made)

    provider.hooks.sync_instance(claim, NodeView(uid="u", name="node"))

    assert bool(cloud.calls.count("virtualMachines:patch")) is not is_machine
    assert ("team" in cloud.instance(made).tags) is not is_machine
