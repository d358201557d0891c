"""Labels that users may require, and those of AKS and Karpenter that they may not set."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import ALIASES, RESTRICTED_DOMAIN, WELL_KNOWN, ZONE
from karpenter_core.api.nodepool import NodePool
from karpenter_core.lifecycle.nodepool.validation import LabelRules, validate_node_pool
from karpenter_provider_azure import labels
from karpenter_provider_azure.labels import LABEL_CLASSES

RULES = LabelRules(
    well_known=WELL_KNOWN | LABEL_CLASSES.well_known,
    restricted_domains=LABEL_CLASSES.restricted_domains | {RESTRICTED_DOMAIN},
    settable=LABEL_CLASSES.settable,
    aliases={**ALIASES, **LABEL_CLASSES.aliases},
    known_values=LABEL_CLASSES.known_values,
)


def findings(key: str, *values: str, operator: str = "In"):
    pool = NodePool.model_validate(
        {
            "metadata": {"name": "web"},
            "spec": {
                "template": {
                    "spec": {
                        "nodeClassRef": {
                            "group": "karpenter.azure.com",
                            "kind": "AKSNodeClass",
                            "name": "web",
                        },
                        "requirements": [
                            {"key": key, "operator": operator, "values": list(values)}
                        ],
                    }
                }
            },
        }
    )
    return validate_node_pool(pool, rules=RULES)


@pytest.mark.parametrize(
    ("key", "value", "is_allowed"),
    [
        ("karpenter.azure.com/foo", "x", False),
        ("a.karpenter.azure.com/foo", "x", False),
        ("karpenter.azure.com/sku-hyperv-generation", "2", False),
        ("karpenter.azure.com/sku-family", "D", True),
        ("karpenter.azure.com/sku-storage-ephemeralos-maxsize", "128", True),
        ("kubernetes.azure.com/ebpf-dataplane", "cilium", True),
        ("kubernetes.azure.com/ebpf-host-routing", "true", True),
        ("kubernetes.azure.com/network-policy", "azure", True),
        ("kubernetes.azure.com/hostedvm", "true", True),
        ("kubernetes.azure.com/mode", "system", True),
        ("kubernetes.azure.com/scalesetpriority", "spot", True),
        ("kubernetes.azure.com/priority", "regular", True),
        ("kubernetes.azure.com/fips_enabled", "true", True),
        ("kubernetes.azure.com/os-sku", "AzureLinux", True),
        ("kubernetes.azure.com/cluster", "MC_shop", True),
        ("kubernetes.azure.com/sku-cpu", "4", True),
        ("kubernetes.azure.com/sku-memory", "16384", True),
        ("kubernetes.azure.com/agentpool", "x", False),
        ("kubernetes.azure.com/role", "agent", False),
        ("a.kubernetes.azure.com/x", "x", False),
        ("example.com/team", "web", True),
    ],
)
def test_labels_of_both_domains_are_restricted(key, value, is_allowed):
    # case 16
    errors = findings(key, value).errors

    assert (not errors) is is_allowed
    if errors:
        assert key in errors[0]
        assert "kubernetes.azure.com/hostedvm" in errors[0], "it lists what may be set"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (labels.SKU_NETWORKING_ACCELERATED, "yes"),
        (labels.SKU_STORAGE_PREMIUM_CAPABLE, "True"),
        (labels.SKU_STORAGE_ULTRA_SSD, "1"),
        (labels.SKU_GPU_MANUFACTURER, "intel"),
        (labels.PLACEMENT_SCOPE, "global"),
        (labels.AKS_MODE, "master"),
        (labels.AKS_SCALE_SET_PRIORITY, "low"),
        (labels.AKS_PRIORITY, "on-demand"),
        (labels.AKS_OS_SKU, "Ubuntu2204"),
        (labels.AKS_FIPS_ENABLED, "false"),
    ],
)
def test_a_value_that_no_node_has_is_refused(key, value):
    known = sorted(LABEL_CLASSES.known_values[key])

    assert not findings(key, *known).errors
    (error,) = findings(key, value).errors
    assert value in error


def test_the_nodeclass_label_is_the_cores():
    assert labels.NODE_CLASS == "karpenter.azure.com/aksnodeclass"
    assert labels.NODE_CLASS not in LABEL_CLASSES.well_known


def test_no_label_is_both_defined_by_instance_types_and_merely_settable():
    assert not LABEL_CLASSES.well_known & LABEL_CLASSES.settable


def test_zones_of_disks_are_zones_of_nodes():
    """A volume outside zones belongs to the regional zone."""
    assert LABEL_CLASSES.aliases == {"topology.disk.csi.azure.com/zone": ZONE}
    assert LABEL_CLASSES.value_aliases == {ZONE: {"": "0"}}
