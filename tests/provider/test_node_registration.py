"""Labels that the kubelet of a new node may set."""

from __future__ import annotations

import pytest

from karpenter_core.provider.kit.node_registration import is_settable_by_kubelet


@pytest.mark.parametrize(
    ("label", "is_settable"),
    [
        ("team", True),
        ("example.com/team", True),
        ("karpenter.sh/nodepool", True),
        ("kubernetes.io/arch", True),
        ("topology.kubernetes.io/zone", True),
        ("node.kubernetes.io/x", True),
        ("a.kubelet.kubernetes.io/x", True),
        ("node-restriction.kubernetes.io/x", False),
        ("node-role.kubernetes.io/worker", False),
        ("kubernetes.io/x", False),
        ("x.k8s.io/y", False),
        ("notkubernetes.io/x", True),
    ],
)
def test_a_kubelet_sets_its_own_labels_of_kubernetes_domains_only(label, is_settable):
    assert is_settable_by_kubelet(label) is is_settable
