"""A Node registers for a virtual machine only under the machine's name, which is the kubelet's host."""

from __future__ import annotations

import pytest

from karpenter_core.testing.state_builders import node, node_claim
from karpenter_provider_azure.plugin import AzureProvider

GROUP = "azure:///subscriptions/s/resourceGroups/nodes/providers/Microsoft.Compute/virtualMachines"


def answer(*, machine, claim, name):
    launched = node_claim(claim, stage="Launched", provider_id=f"{GROUP}/{machine}")
    return AzureProvider().karpenter_gate_registration(launched, node(name, claim=launched))


@pytest.mark.parametrize("name", ["aks-web-2", "web-1", "aks-web-1.internal"])
def test_a_node_of_another_name_is_refused(name):
    refusal = answer(machine="aks-web-1", claim="web-1", name=name)

    assert refusal.reason == 'is not named "aks-web-1" like the instance'


def test_the_case_of_the_machine_does_not_count():
    """Names of Nodes are in lower case; Azure answers with any spelling."""
    assert answer(machine="AKS-Web-1", claim="web-1", name="aks-web-1") is None


def test_a_machine_that_aks_named_is_not_compared():
    assert answer(machine="aks-pool-web-12345678-vm", claim="web-1", name="aks-any") is None
