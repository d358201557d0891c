"""Tests that user data has the numbers of the catalogue (cases 47 to 51).

Numbers come from the facts of real instance types, text from the launch template that results.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any

import pytest

from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.testing.builders import instance_type
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.families.traits import TRAITS
from karpenter_provider_aws.kubelet.sizing import (
    KubeletSizing,
    kubelet_sizing,
    read_kubelet_options,
)
from karpenter_provider_aws.launch.template_groups import (
    ClusterDetails,
    TemplateRequest,
    templates_for,
)
from providers.aws.tests.catalogue.recorded_region import info

CLUSTER = ClusterDetails(
    name="test", endpoint="https://test", region="us-east-1", service_cidr="10.100.0.0/16"
)
MAX_PODS = re.compile(r"(?:--max-pods=|maxPods: |max-pods = )(\d+)")
EFA_ONLY = [
    {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
    {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"},
    {"networkCardIndex": 0, "deviceIndex": 2, "interfaceType": "efa-only"},
]


def text_and_sizing(
    alias: str, name: str, *, reserved_enis: int = 0, **spec: Any
) -> tuple[str, KubeletSizing]:
    """Return user data of a type, and the numbers that the catalogue has of it."""
    node_class = EC2NodeClass.model_validate(
        {
            "metadata": {"name": "default"},
            "spec": {"amiSelectorTerms": [{"alias": f"{alias}@latest"}], **spec},
            "status": {
                "amis": [{"id": "ami-1"}],
                "securityGroups": [{"id": "sg-1"}],
                "instanceProfile": "profile",
            },
        }
    )
    sizing = kubelet_sizing(
        info(name),
        node_class,
        read_kubelet_options(node_class),
        TRAITS[node_class.ami_family],
        reserved_enis=reserved_enis,
        evaluate=None,
    )
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    request = TemplateRequest(
        node_class=node_class,
        node_claim=NodeClaim.model_validate({"spec": {"requirements": [], "nodeClassRef": ref}}),
        instance_types=(instance_type(name),),
        capacity_type="on-demand",
        tags={},
    )
    [template] = templates_for(request, CLUSTER, lambda _: sizing, lambda _: ())
    return b64decode(template.data["UserData"]).decode(), sizing


@pytest.mark.parametrize(
    ("alias", "name", "pods", "options"),
    [
        ("al2", "t3.large", 35, {}),
        ("al2023", "m6idn.32xlarge", 394, {}),
        ("bottlerocket", "m5.large", 20, {"reserved_enis": 1}),
        ("al2", "t3.large", 24, {"reserved_enis": 1}),
        ("windows2022", "t3.large", 110, {"reserved_enis": 1}),
        ("al2023", "p4d.24xlarge", 639, {"networkInterfaces": EFA_ONLY}),
        ("al2", "t3.large", 10, {"kubelet": {"maxPods": 10}}),
        ("bottlerocket", "t3.large", 10, {"kubelet": {"maxPods": 10}}),
        ("windows2022", "t3.large", 10, {"kubelet": {"maxPods": 10}}),
    ],
)
def test_the_kubelet_gets_max_pods_of_the_catalogue(alias, name, pods, options):
    text, sizing = text_and_sizing(alias, name, **options)

    assert MAX_PODS.findall(text) == [str(pods)]
    assert sizing.pods == pods


@pytest.mark.parametrize("alias", ["al2", "al2023", "windows2022"])
def test_pods_per_core_reach_a_kubelet_that_supports_them(alias):
    text, sizing = text_and_sizing(alias, "t3.large", kubelet={"podsPerCore": 4, "maxPods": 20})

    assert MAX_PODS.findall(text) == ["20"]
    assert re.search(r"--pods-per-core=4|podsPerCore: 4", text)
    assert sizing.pods == 8


def test_bottlerocket_ignores_pods_per_core():
    text, sizing = text_and_sizing("bottlerocket", "t3.large", kubelet={"podsPerCore": 4})

    assert "pods-per-core" not in text
    assert sizing.pods == 35


@pytest.mark.parametrize(
    ("alias", "written"),
    [
        ("al2", '--kube-reserved="cpu=200m,memory=1Gi"'),
        ("al2023", 'kubeReserved:\n        cpu: "200m"\n        memory: "1Gi"'),
        ("bottlerocket", '[settings.kubernetes.kube-reserved]\ncpu = "200m"\nmemory = "1Gi"'),
        ("windows2022", '--kube-reserved="cpu=200m,memory=1Gi"'),
    ],
)
def test_reservations_of_the_user_alone_reach_the_kubelet(alias, written):
    spec = {"kubelet": {"kubeReserved": {"memory": "1Gi", "cpu": "200m"}}}

    assert written in text_and_sizing(alias, "t3.large", **spec)[0]
    assert "eserved" not in text_and_sizing(alias, "t3.large")[0]
