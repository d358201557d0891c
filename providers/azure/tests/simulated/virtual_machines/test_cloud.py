"""The whole simulated cloud: its environment, its reset, and its own controls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from karpenter_simulated_azure.cloud import SimulatedAzure
from karpenter_simulated_azure.invariants import broken_invariants, leftovers
from karpenter_simulated_azure.world import AzureWorld


def test_the_default_chain_of_credentials_follows_the_environment(cloud):
    # The workload identity of a pod needs no option but the certificate.
    from azure.identity import DefaultAzureCredential
    from azure.mgmt.compute import ComputeManagementClient

    endpoints = json.loads(Path(os.environ["AZURE_ENVIRONMENT_FILEPATH"]).read_text())
    ca_bundle = os.environ["AZURE_CA_BUNDLE"]
    with ComputeManagementClient(
        DefaultAzureCredential(connection_verify=ca_bundle, disable_instance_discovery=True),
        os.environ["AZURE_SUBSCRIPTION_ID"],
        base_url=endpoints["resourceManagerEndpoint"],
        credential_scopes=[f"{endpoints['tokenAudience']}/.default"],
        connection_verify=ca_bundle,
    ) as client:
        group = os.environ["AZURE_NODE_RESOURCE_GROUP"]
        assert list(client.virtual_machines.list(group)) == []


def test_the_environment_fits_the_settings_of_the_provider(cloud):
    from karpenter_provider_azure.settings import SETTINGS

    known = {spec.env or spec.flag[2:].upper().replace("-", "_") for spec in SETTINGS}
    of_identity = {
        "AZURE_AUTHORITY_HOST",
        "AZURE_CLIENT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
        "CLUSTER_NAME",
    }
    assert cloud.environment.keys() - known == of_identity


def test_a_reset_restores_the_beginning(azure, cloud):
    cloud.usages.set_limit("cores", 4)
    cloud.capacity.sell_out(zone="westus2-1")
    cloud.operations.fail("*", stuck=True)
    cloud.behaviour.orphans_interfaces = True
    azure.put(zone="2")
    cloud.reset()
    assert not list(leftovers(cloud))
    assert not cloud.calls.all
    assert not cloud.launches.all
    assert azure.create(size="Standard_D8s_v5").provisioning_state == "Succeeded"
    assert broken_invariants(cloud) == []


def test_virtual_machines_are_named_in_several_ways(azure, cloud):
    provider_id = cloud.create_vm("aks-a")
    (machine,) = cloud.living()
    for named in (provider_id, machine.resource_id, machine.id, "aks-a", "AKS-A"):
        assert cloud.instance(named) is machine
    with pytest.raises(LookupError):
        cloud.instance("aks-b")


def test_a_virtual_machine_of_another_cluster_has_its_tags(azure, cloud):
    provider_id = cloud.create_foreign_vm()
    assert cloud.instance(provider_id).tags["karpenter.azure.com_cluster"] == "other"
    assert cloud.calls.count("virtualMachines:put") == 0


def test_tags_are_set_and_removed_by_another_hand(azure, cloud):
    azure.create(tags={"a": "1", "b": "2"})
    cloud.tag("aks-a", {"a": None, "c": "3"})
    assert azure.machines.get(azure.group, "aks-a").tags == {"b": "2", "c": "3"}


def test_another_world_may_be_simulated():
    world = AzureWorld(location="northeurope", zones=("1",), cluster_name="another")
    with SimulatedAzure(world=world) as cloud:
        provider_id = cloud.create_vm("aks-a")
        assert cloud.instance(provider_id).zone == "northeurope-1"
        assert cloud.environment["LOCATION"] == "northeurope"
        ca_bundle = Path(cloud.ca_bundle)
        assert ca_bundle.exists()
    assert not ca_bundle.exists()


def test_it_runs_as_a_program_of_its_own():
    with subprocess.Popen(
        [sys.executable, "-m", "karpenter_simulated_azure", "--location", "eastus"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        told = dict(
            line.removeprefix("export ").rstrip("\n").split("=", 1)
            for line in iter(process.stdout.readline, "\n")
        )
        assert Path(told["AZURE_CA_BUNDLE"]).exists()
        process.terminate()
    assert not Path(told["AZURE_CA_BUNDLE"]).exists()
    assert told["LOCATION"] == "eastus"
    assert told["AZURE_PRICING_URL"].startswith("https://127.0.0.1:")
