"""LocalDNS of NodeClasses follows from the mode and, if it is preferred, from the cluster."""

from __future__ import annotations

import pytest

from providers.azure.tests.node_class.worlds import Process, node_class_of, said

KONNECTIVITY = {"metadata": {"namespace": "kube-system", "name": "konnectivity-agent"}}
OTHER = {"metadata": {"namespace": "web", "name": "deny"}}
NODE_LOCAL_DNS = {"daemonsets.apps": [{"metadata": {"name": "node-local-dns"}}]}
PREFERRED = {"mode": "Preferred"}


def process_of(**settings):
    """Return a process of a cluster that is new enough."""
    defaults = {"network_policy": "Cilium", "local_dns_preferred_since": "1.33.0"}
    return Process(**{**defaults, **settings})


def state(process, *, before="", **spec):
    status = {"localDNSState": before} if before else None
    return process.resolve(node_class_of(status=status, **spec))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, "Disabled"),
        ({"localDNS": {"mode": "Disabled"}}, "Disabled"),
        ({"localDNS": {"mode": "Required"}}, "Enabled"),
    ],
)
def test_a_mode_that_is_not_preferred_decides_alone(spec, expected):
    process = Process()
    process.objects.problem = "forbidden"

    for before in ("", "Enabled", "Disabled"):
        found = state(process, before=before, **spec)
        assert found.status.local_dns_state == expected
        assert said(found, "LocalDNSReady")[0] == "True"


@pytest.mark.parametrize(
    ("objects", "cause"),
    [
        ({}, ""),
        ({"networkpolicies.networking.k8s.io": [KONNECTIVITY]}, ""),
        ({"networkpolicies.networking.k8s.io": [KONNECTIVITY, OTHER]}, "network policies"),
        ({"networkpolicies.crd.projectcalico.org": [KONNECTIVITY]}, "projectcalico"),
        ({"globalnetworkpolicies.crd.projectcalico.org": [OTHER]}, "globalnetworkpolicies"),
        ({"ciliumnetworkpolicies.cilium.io": [OTHER]}, "ciliumnetworkpolicies"),
        ({"ciliumclusterwidenetworkpolicies.cilium.io": [OTHER]}, "ciliumclusterwide"),
        (NODE_LOCAL_DNS, "DaemonSet kube-system/node-local-dns"),
    ],
)
def test_preferred_enables_where_the_cluster_has_no_conflict(objects, cause):
    process = process_of()
    process.objects.objects = objects

    found = state(process, localDNS=PREFERRED)

    assert found.status.local_dns_state == ("Disabled" if cause else "Enabled")
    assert cause in said(found, "LocalDNSReady")[2]


def test_network_policies_count_only_with_an_engine_that_enforces_them():
    process = process_of(network_policy="")
    process.objects.objects = {"networkpolicies.networking.k8s.io": [OTHER]}

    assert state(process, localDNS=PREFERRED).status.local_dns_state == "Enabled"


@pytest.mark.parametrize(
    ("settings", "spec", "cause"),
    [
        ({"version": "v1.32.9"}, {}, "Kubernetes 1.32.9 is older than 1.33.0"),
        ({"network_plugin": "none", "network_plugin_mode": ""}, {}, "no network plugin"),
        ({"use_sig": True}, {"fipsMode": "FIPS"}, "Ubuntu 20.04"),
    ],
)
def test_preferred_is_disabled_where_nodes_cannot_have_it(settings, spec, cause):
    found = state(process_of(**settings), localDNS=PREFERRED, **spec)

    assert found.status.local_dns_state == "Disabled"
    status, _, message = said(found, "LocalDNSReady")
    assert status == "True"
    assert message.startswith('spec.localDNS.mode "Preferred": LocalDNS is disabled')
    assert cause in message


def test_no_version_of_kubernetes_enables_it_by_default():
    found = state(Process(version="v1.36.0"), localDNS=PREFERRED)

    assert found.status.local_dns_state == "Disabled"


def test_local_dns_stays_enabled_until_the_mode_changes():  # case 71
    process = process_of()
    found = state(process, localDNS=PREFERRED)
    assert found.status.local_dns_state == "Enabled"
    process.objects.objects = NODE_LOCAL_DNS

    found = process.resolve(found)
    assert found.status.local_dns_state == "Enabled"
    spec = node_class_of(localDNS={"mode": "Disabled"}).spec
    found = process.resolve(found.model_copy(update={"spec": spec}))
    assert found.status.local_dns_state == "Disabled"


def test_a_cluster_that_is_not_read_yet_leaves_a_node_class_ready():
    """A new process begins without the objects of the cluster."""
    process = process_of()
    process.objects.objects = NODE_LOCAL_DNS
    found = state(process, localDNS=PREFERRED)
    process.objects.problem = "daemonsets.apps could not be read: not requested yet"

    again = process.resolve(found)

    assert said(again, "Ready")[0] == "True"
    assert said(again, "LocalDNSReady") == said(found, "LocalDNSReady")
    assert again.status.local_dns_state == "Disabled"


def test_a_cluster_that_cannot_be_read_is_shown_and_keeps_the_state():
    process = process_of()
    process.objects.problem = "daemonsets.apps is forbidden"

    found = state(process, before="Disabled", localDNS=PREFERRED)

    status, reason, message = said(found, "LocalDNSReady")
    assert (status, reason) == ("Unknown", "CheckingClusterRequirementsFailed")
    assert "daemonsets.apps is forbidden" in message
    assert found.status.local_dns_state == "Disabled"


def test_an_unknown_mode_is_refused():
    found = state(Process(), localDNS={"mode": "Sometimes"})

    assert said(found, "LocalDNSReady")[0] == "False"
    assert 'spec.localDNS.mode "Sometimes"' in said(found, "LocalDNSReady")[2]
