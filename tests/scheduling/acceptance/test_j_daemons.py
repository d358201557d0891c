"""Cases 141 to 160 and 367: what DaemonSets take of a node, and where they do not run."""

from __future__ import annotations

import msgspec
import pytest

from karpenter_core.api.labels import INITIALIZED, INSTANCE_TYPE, REGISTERED, ZONE
from karpenter_core.testing.builders import node_term, preferred_node_term, requirement_spec
from tests.scheduling.acceptance.catalogues import SIZE, default_pool
from tests.scheduling.acceptance.workloads import decoded, template

DEFAULT, SMALL = "default-instance-type", "small-instance-type"
BIG = {"cpu": "2", "memory": "2Gi"}
"""A daemon that leaves no room for `plain` on the small type, and some on the default type."""


def plain(cluster, **options):
    return cluster.pod(cpu="1", memory="1Gi", **options)


def type_of(cluster, pod):
    return cluster.labels_of(pod)[INSTANCE_TYPE]


def daemon_set(name, *, containers, init=()):
    """Read a DaemonSet from a manifest; containers as resources."""

    def listed(parts):
        return [{"name": f"c{n}", "resources": part} for n, part in enumerate(parts)]

    spec = {"containers": listed(containers), "initContainers": listed(init)}
    return decoded(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-owner-{name}"},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            },
        }
    )


def test_case_141_daemons_take_resources(cluster):
    cluster.apply(cluster.daemon_set(**BIG))
    pod = plain(cluster)
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT


def test_case_142_daemons_take_host_ports(cluster):
    cluster.apply(cluster.daemon_set(**BIG, host_ports=[8080]))
    pod = plain(cluster, host_ports=[8080])
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)
    assert not cluster.nodes


def test_case_143_a_startup_taint_keeps_no_daemon_away(cluster):
    cluster.use(default_pool(startup_taints=["foo.com/taint:NoSchedule"]))
    cluster.apply(cluster.daemon_set(**BIG))
    pod = plain(cluster)
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT


@pytest.mark.parametrize(
    "resources",
    [
        {"requests": {"cpu": "10000", "memory": "10000Gi"}},
        {"requests": {"cpu": "1"}, "limits": {"cpu": "10000", "memory": "10000Gi"}},
    ],
    ids=["requests", "limits"],
)
def test_case_144_a_daemon_too_large_for_any_node(cluster, resources):
    cluster.apply(daemon_set("agent", containers=[resources]))
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def test_case_145_init_containers_of_daemons_count(cluster):
    cluster.apply(
        daemon_set(
            "agent",
            containers=[{"requests": {"cpu": "1"}, "limits": {"cpu": "10000", "memory": "1Gi"}}],
            init=[{"requests": {"cpu": "3"}, "limits": {"cpu": "10000", "memory": "3Gi"}}],
        )
    )
    pod = cluster.pod()
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT


@pytest.mark.parametrize(
    "init",
    [
        {"requests": {"cpu": "1"}, "limits": {"cpu": "10000", "memory": "10000Gi"}},
        {"requests": {"cpu": "10000", "memory": "10000Gi"}},
    ],
    ids=["limits", "requests"],
)
def test_case_145_an_init_container_too_large_for_any_node(cluster, init):
    main = {"requests": {"cpu": "1"}, "limits": {"cpu": "10000", "memory": "1Gi"}}
    cluster.apply(daemon_set("agent", containers=[main], init=[init]))
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def daemon_pod(cluster, name="agent", **options):
    """Make a pod of a DaemonSet."""
    shape = template(owner_kind="DaemonSet", **options)
    return cluster.pods(1, name=name, shape=shape, owner_name=name, owner_uid=f"uid-owner-{name}")[
        0
    ]


def test_case_146_a_running_daemon_pod_gives_its_requests(cluster):
    cluster.apply(cluster.daemon_set(cpu="4", memory="4Gi"), daemon_pod(cluster, **BIG))
    pod = plain(cluster)
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT


def test_case_147_a_daemon_without_requests(cluster):
    cluster.apply(daemon_set("agent", containers=[{}]))
    pod = cluster.pod()
    cluster.provision(pod)
    assert cluster.is_scheduled(pod)


def test_case_148_a_daemon_that_does_not_tolerate_the_pools_taint(cluster):
    cluster.use(default_pool(taints=["foo=bar:NoSchedule"]))
    cluster.apply(cluster.daemon_set(**BIG))
    pod = plain(cluster, tolerations=[""])
    cluster.provision(pod)
    assert type_of(cluster, pod) == SMALL


@pytest.mark.parametrize(
    "options",
    [
        {"node_selector": {"node": "invalid"}},
        {"where": [(INSTANCE_TYPE, "In", "non-existent-instance-type")]},
    ],
    ids=["selector", "instance type"],
)
def test_case_149_a_daemon_that_runs_nowhere(cluster, options):
    cluster.apply(cluster.daemon_set(**BIG, **options))
    pod = plain(cluster)
    cluster.provision(pod)
    assert type_of(cluster, pod) == SMALL


@pytest.mark.parametrize("selected", [True, False])
def test_case_150_a_daemon_that_selects_a_template_label(cluster, selected):
    cluster.use(default_pool(labels={"purpose": "monitoring" if selected else "other"}))
    cluster.apply(cluster.daemon_set(**BIG, node_selector={"purpose": "monitoring"}))
    pod = plain(cluster)
    cluster.provision(pod)
    assert type_of(cluster, pod) == (DEFAULT if selected else SMALL)


def test_case_151_only_the_daemons_of_a_type_count_on_it(cluster):
    cluster.apply(
        cluster.daemon_set("of-small", cpu="1", where=[(SIZE, "In", "small")]),
        cluster.daemon_set("of-large", cpu="10", where=[(SIZE, "In", "large")]),
    )
    pod = plain(cluster)
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT


def test_case_152_a_daemon_that_excludes_a_value_of_an_undefined_label(cluster):
    cluster.apply(cluster.daemon_set(**BIG, where=[("foo", "NotIn", "bar")]))
    pod = plain(cluster, where=[(ZONE, "In", "z2")])
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT


def test_case_153_where_a_daemon_runs_is_the_templates_to_say(cluster):
    """Its pods are pinned to their nodes, which says nothing of the next one."""
    cluster.use(default_pool(labels={"foo": "bar"}))
    cluster.apply(
        cluster.daemon_set(cpu="4", memory="4Gi", where=[("foo", "In", "bar")]),
        daemon_pod(cluster, **BIG, where=[("metadata.name", "In", "node-name")]),
    )
    pod = plain(cluster, node_selector={"foo": "bar"})
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT


@pytest.mark.parametrize("first", ["voo", "bar"])
def test_case_154_any_of_a_daemons_terms_will_do(cluster, first):
    cluster.use(default_pool(labels={"foo": "bar"}))
    second = {"voo": "bar", "bar": "voo"}[first]
    terms = [node_term(("foo", "In", value)) for value in (first, second)]
    cluster.apply(cluster.daemon_set(**BIG, required=terms))
    pod = plain(cluster)
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT


def test_case_155_a_daemons_preference_keeps_it_from_nothing(cluster):
    wish = preferred_node_term(1, ("node", "In", "invalid"))
    cluster.apply(cluster.daemon_set(**BIG, preferred=[wish]))
    pod = plain(cluster)
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT


def test_case_156_a_soft_taint_keeps_no_daemon_away(cluster):
    cluster.use(default_pool(taints=["test:PreferNoSchedule"]))
    cluster.apply(cluster.daemon_set(**BIG))
    pod = plain(cluster)
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT


def test_case_157_ports_of_daemons_that_run_elsewhere_are_free(cluster):
    large = {"where": [(SIZE, "In", "large")], "host_ports": [8080]}
    small = {"where": [(SIZE, "In", "small")], "host_ports": [8081]}
    cluster.apply(
        cluster.daemon_set("of-large", cpu="4", memory="4Gi", **large),
        cluster.daemon_set("of-small", **BIG, **small),
    )
    pod = plain(cluster, where=[(SIZE, "In", "small")], host_ports=[8080])
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT
    assert cluster.labels_of(pod)[SIZE] == "small"


def test_case_157_the_pod_alone_decides_for_the_types_without_the_daemon(cluster):
    cluster.apply(cluster.daemon_set("of-large", where=[(SIZE, "In", "large")], host_ports=[8080]))
    pod = plain(cluster, host_ports=[8080])
    (planned,) = cluster.provision(pod).plan.claims
    assert "arm-instance-type" not in planned.instance_types


def requests_of(claim):
    return {name: str(amount) for name, amount in claim.spec.resources.requests.items()}


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, {"cpu": "2", "memory": "2Mi", "pods": "2"}),
        (2, {"cpu": "3", "memory": "3Mi", "pods": "3"}),
    ],
    ids=["158", "159"],
)
def test_case_158_159_a_claim_requests_its_pods_and_once_its_daemons(cluster, number, expected):
    cluster.apply(cluster.daemon_set(cpu="1", memory="1Mi"))
    cluster.provision(*cluster.pods(number, cpu="1", memory="1Mi"))
    (claim,) = cluster.created
    assert requests_of(claim) == expected


def test_case_160_daemons_that_wait_for_registered_and_initialised_nodes(cluster):
    """Both count for the choice of the type; a cloud cannot be asked for the labels they wait for."""
    cluster.apply(
        cluster.daemon_set("after-initialisation", cpu="1", where=[(INITIALIZED, "In", "true")]),
        cluster.daemon_set("after-registration", cpu="1", where=[(REGISTERED, "In", "true")]),
    )
    pod = cluster.pod(limits={"cpu": "2"})
    cluster.provision(pod)
    (claim,) = cluster.created
    assert type_of(cluster, pod) == "arm-instance-type"
    assert {REGISTERED, INITIALIZED}.isdisjoint(item.key for item in claim.spec.requirements)
    assert {REGISTERED, INITIALIZED}.isdisjoint(claim.metadata.labels)


def test_case_160_their_pods_are_counted_when_they_are_there(cluster):
    cluster.apply(
        cluster.daemon_set("after-initialisation", cpu="1", where=[(INITIALIZED, "In", "true")]),
        cluster.daemon_set("after-registration", cpu="1", where=[(REGISTERED, "In", "true")]),
    )
    first = cluster.pod(limits={"cpu": "2"})
    cluster.provision(first)
    (node,) = cluster.nodes
    for name in ("after-initialisation", "after-registration"):
        cluster.bind(daemon_pod(cluster, name, cpu="1"), node)
    cluster.initialize(node)
    second = cluster.pod(cpu="11900m")
    cluster.provision(second)
    assert cluster.node_of(second).name == node.name


def test_case_367_limits_of_a_daemon_template_count_as_requests(cluster):
    """Named like its DaemonSet; a limit without a request is one."""
    limits = {"cpu": "10", "memory": "1Gi"}
    cluster.apply(daemon_set("agent", containers=[{"requests": {"cpu": "1"}, "limits": limits}]))
    cluster.apply(cluster.pod())
    asked = cluster.plan().asked.problem
    (daemon,) = asked.daemons
    assert daemon.name == "default/agent"
    assert daemon.shape.namespace == "default"
    assert daemon.shape.requests == {"cpu": 1000, "memory": 2**30, "pods": 1}


def test_case_151_a_requirement_of_the_pool_narrows_its_daemons(cluster):
    """A daemon of large nodes does not count in a pool of small ones."""
    cluster.use(default_pool(requirements=[requirement_spec(SIZE, "In", "small")]))
    cluster.apply(cluster.daemon_set("of-large", **BIG, where=[(SIZE, "In", "large")]))
    pod = plain(cluster)
    cluster.provision(pod)
    assert type_of(cluster, pod) == SMALL


def test_case_146_the_newest_daemon_pod_counts(cluster):
    """An old pod from before the DaemonSet changed says nothing of the next one."""
    old = daemon_pod(cluster, cpu="100m")
    new = msgspec.structs.replace(daemon_pod(cluster, **BIG), created=cluster.now)
    cluster.advance(seconds=1)
    cluster.apply(
        cluster.daemon_set(cpu="4", memory="4Gi"),
        old,
        msgspec.structs.replace(new, created=cluster.now),
    )
    pod = plain(cluster)
    cluster.provision(pod)
    assert type_of(cluster, pod) == DEFAULT
