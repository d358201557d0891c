"""`karpenter doctor` finds and names problems, with a remedy."""

from __future__ import annotations

import asyncio
import copy
import json

import pytest
from typer.testing import CliRunner

from karpenter_core.api.crd import core_models, crd_name, render_crd
from karpenter_core.cli.catalogues import open_providers
from karpenter_core.cli.doctor.definitions import check_definitions
from karpenter_core.cli.doctor.objects import check_objects, object_findings
from karpenter_core.cli.doctor.permissions import (
    Permission,
    check_fact_permissions,
    check_permissions,
    needed_permissions,
)
from karpenter_core.cli.main import build_app
from karpenter_core.errors import ApiError
from karpenter_core.kube.api import ClusterApis, KubeApi
from karpenter_core.kube.resources import EVENTS, NODES, PODS
from karpenter_core.kube.transport import ApiResponse
from karpenter_core.kube.wire.codecs import NODE_OVERLAYS, NODE_POOLS
from karpenter_core.operator.clock import SystemClock
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.contract import Finding, Severity
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.provider.markers import hookimpl
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.provider.fakes import FakeProvider

KWOK = {"kwok": (KWOKNodeClass,)}
MODELS = (*core_models(), KWOKNodeClass)


class Server:
    """An API server with definitions, which forbids some things."""

    def __init__(self, definitions=(), forbidden=()):
        self.definitions = {d["metadata"]["name"]: d for d in definitions}
        self.forbidden = forbidden
        self.asked = []

    async def request(self, request):
        if request.path.endswith("selfsubjectaccessreviews"):
            asked = json.loads(request.body)["spec"]["resourceAttributes"]
            self.asked.append(asked)
            allowed = (asked["verb"], asked["resource"]) not in self.forbidden
            return ApiResponse(
                status=201, body=json.dumps({"status": {"allowed": allowed}}).encode()
            )
        name = request.path.rsplit("/", 1)[1]
        if "get" in self.forbidden:
            return ApiResponse(status=403, body=b'{"message": "no"}')
        if name not in self.definitions:
            return ApiResponse(status=404, body=b'{"message": "not found"}')
        return ApiResponse(status=200, body=json.dumps(self.definitions[name]).encode())


def stored(model):
    """Return a definition as an API server answers it."""
    definition = copy.deepcopy(render_crd(model))
    definition["spec"]["conversion"] = {"strategy": "None"}
    definition["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
    return definition


def ask(check, server, *arguments):
    apis = ClusterApis(KubeApi(server, clock=SystemClock()))
    findings = asyncio.run(check(apis, *arguments))
    return [(finding.severity, finding.message) for finding in findings]


def test_definitions_of_this_version_are_fine():
    server = Server([stored(model) for model in MODELS])
    assert ask(check_definitions, server, KWOK) == [
        (Severity.OK, "4 CustomResourceDefinitions are those of this version")
    ]


def test_a_missing_install_is_an_error_with_the_command_to_run():
    server = Server([stored(model) for model in MODELS[:2]])
    apis = ClusterApis(KubeApi(server, clock=SystemClock()))
    (finding,) = asyncio.run(check_definitions(apis, KWOK))
    name = crd_name(KWOKNodeClass.resource)
    assert finding.message == f"the CustomResourceDefinition {name} is not installed"
    assert finding.remedy == "karpenter crds --provider kwok | kubectl apply --server-side -f -"


def changed(change):
    definitions = [stored(model) for model in MODELS]
    change(definitions[0])
    return Server(definitions)


def with_an_old_schema(definition):
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["weight"]


def with_an_old_version(definition):
    definition["spec"]["versions"][0]["name"] = "v1beta1"


def not_established(definition):
    definition["status"]["conditions"][0]["status"] = "False"


@pytest.mark.parametrize(
    ("change", "severity", "message"),
    [
        (
            with_an_old_schema,
            Severity.WARNING,
            "the schema of nodepools.karpenter.sh v1 is not that of this version",
        ),
        (with_an_old_version, Severity.ERROR, "nodepools.karpenter.sh serves v1beta1, not v1"),
        (
            not_established,
            Severity.ERROR,
            "the CustomResourceDefinition nodepools.karpenter.sh is not established",
        ),
    ],
)
def test_definitions_of_another_version_are_named(change, severity, message):
    assert ask(check_definitions, changed(change), KWOK) == [(severity, message)]


@pytest.mark.parametrize("is_served", [True, False])
def test_objects_that_are_stored_in_an_older_version_are_named(is_served):
    """The API server keeps no definition without a version that `storedVersions` has."""

    def change(definition):
        version = definition["spec"]["versions"][0]
        older = {**version, "name": "v1beta1", "storage": False}
        definition["spec"]["versions"] = [version, older] if is_served else [older]
        definition["status"]["storedVersions"] = ["v1beta1", "v1"]

    apis = ClusterApis(KubeApi(changed(change), clock=SystemClock()))
    first, *others = asyncio.run(check_definitions(apis, KWOK))
    assert "nodepools.karpenter.sh has objects that are stored as v1beta1" in first.message
    if is_served:
        assert (first.severity, others) == (Severity.WARNING, [])
        assert "kubectl patch crd nodepools.karpenter.sh --subresource status" in first.remedy
    else:
        assert first.severity is Severity.ERROR
        assert "upgrade Karpenter to 1.0 first" in first.remedy
        assert others[0].message == "nodepools.karpenter.sh serves v1beta1, not v1"


def test_definitions_that_may_not_be_read_are_one_warning():
    (result,) = ask(check_definitions, Server(forbidden=["get"]), KWOK)
    assert result[0] is Severity.WARNING
    assert result[1].startswith("CustomResourceDefinitions cannot be read: ")


def test_missing_permissions_are_reported_together_by_kind():
    needed = needed_permissions((PODS, NODES), (KWOKNodeClass,), lease_namespace="system")
    server = Server(forbidden=[("list", "pods"), ("watch", "pods"), ("patch", "kwoknodeclasses")])
    assert ask(check_permissions, server, needed) == [
        (Severity.ERROR, "not permitted: list, watch pods"),
        (Severity.ERROR, "not permitted: patch kwoknodeclasses.karpenter.kwok.sh"),
        (Severity.ERROR, "not permitted: patch kwoknodeclasses.karpenter.kwok.sh/status"),
    ]


def test_permissions_that_one_admission_plug_in_asks_for_are_warnings():
    """Roles of before are complete in a cluster without it, and the doctor cannot see which plug-ins run."""
    needed = needed_permissions((PODS,), (KWOKNodeClass,), lease_namespace="system")
    server = Server(forbidden=[("update", "nodepools"), ("update", "nodeclaims")])
    assert ask(check_permissions, server, needed) == [
        (Severity.WARNING, "not permitted: update nodepools.karpenter.sh/finalizers"),
        (Severity.WARNING, "not permitted: update nodeclaims.karpenter.sh/finalizers"),
    ]


def test_facts_of_the_network_that_may_not_be_read_are_warnings():
    """Providers that bootstrap their instances wait for them; others do not need them."""
    assert ask(check_fact_permissions, Server()) == []
    server = Server(forbidden=[("get", "services"), ("get", "servicecidrs")])
    assert ask(check_fact_permissions, server) == [
        (Severity.WARNING, "not permitted: get services/kube-dns in the namespace kube-system"),
        (Severity.WARNING, "not permitted: get servicecidrs.networking.k8s.io/kubernetes"),
    ]


async def test_permissions_for_events_are_checked_in_both_clusters():
    """They go to the cluster of their object."""
    clock = SystemClock()
    of_pods = Server(forbidden=[("create", "events")])
    needed = [Permission("create", EVENTS), Permission("patch", NODE_POOLS)]
    apis = ClusterApis(KubeApi(Server(), clock=clock), KubeApi(of_pods, clock=clock))
    findings = await check_permissions(apis, needed)
    assert [each.message for each in findings] == ["not permitted: create events"]
    findings = await check_permissions(ClusterApis(apis.workload, apis.objects), needed)
    assert [each.message for each in findings] == ["not permitted: create events"]


def test_permissions_for_the_lease_are_checked_in_its_namespace():
    """And not at all where there is no election."""
    with_election = needed_permissions((), (), lease_namespace="system", lease_name="one")
    server = Server()
    ask(check_permissions, server, with_election)
    leases = [asked for asked in server.asked if asked["resource"] == "leases"]
    assert {asked["namespace"] for asked in leases} == {"system"}
    assert {(asked["verb"], asked.get("name", "")) for asked in leases} == {
        ("create", ""),
        ("get", "one"),
        ("patch", "one"),
    }
    without = needed_permissions((), (), lease_namespace=None)
    assert "leases" not in {permission.kind.plural for permission in without}


def test_a_server_that_fails_is_not_taken_for_one_that_forbids():
    class Failing(Server):
        async def request(self, request):
            raise ApiError("connection refused", status=0)

    with pytest.raises(ApiError, match="connection refused"):
        ask(check_definitions, Failing(), KWOK)


class Lister:
    """An API server that lists objects by their plural; others it does not know."""

    def __init__(self, **objects):
        self.objects = objects

    async def request(self, request):
        plural = request.path.rsplit("/", 1)[1]
        if plural not in self.objects:
            return ApiResponse(status=404, body=b"{}")
        page = {"metadata": {}, "items": self.objects[plural]}
        return ApiResponse(status=200, body=json.dumps(page).encode())


def an_object(name, *conditions, kind="KWOKNodeClass", group="karpenter.kwok.sh"):
    """Return a NodePool or NodeClass with these conditions: type, status, message."""
    return {
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"nodeClassRef": {"group": group, "kind": kind}}}},
        "status": {
            "conditions": [{"type": t, "status": s, "message": m} for t, s, m in conditions]
        },
    }


READY = ("Ready", "True", "")


def test_without_an_object_to_check_none_is_called_ready():
    found = dict.fromkeys((NODE_POOLS, NODE_OVERLAYS), ())

    (finding,) = object_findings(found, [KWOKNodeClass], static_capacity=False)

    assert (finding.severity, finding.message) == (
        Severity.OK,
        "no NodePool or NodeClass has a status to check",
    )


def test_ready_pools_and_classes_are_fine():
    server = Lister(nodepools=[an_object("web", READY)], kwoknodeclasses=[an_object("a", READY)])
    assert ask(check_objects, server, [KWOKNodeClass]) == [
        (Severity.OK, "2 NodePools and NodeClasses, all of them ready")
    ]


def test_a_class_that_is_not_ready_says_which_condition_is_false_and_why():
    conditions = (
        ("Ready", "False", ""),
        ("SubnetsReady", "False", "spec.subnets: none matches"),
    )
    server = Lister(nodepools=[an_object("web")], kwoknodeclasses=[an_object("a", *conditions)])
    assert ask(check_objects, server, [KWOKNodeClass]) == [
        (Severity.WARNING, 'NodePool "web" has not been reconciled yet'),
        (
            Severity.ERROR,
            'KWOKNodeClass "a" is not ready: SubnetsReady: spec.subnets: none matches',
        ),
    ]


def test_a_pool_that_is_ready_and_cannot_compare_prices_is_a_warning():
    conditions = (READY, ("PricesComparable", "False", "no exchange rate from EUR to USD"))
    server = Lister(nodepools=[an_object("web", *conditions)])
    assert ask(check_objects, server, [KWOKNodeClass]) == [
        (Severity.WARNING, 'NodePool "web": no exchange rate from EUR to USD')
    ]


def test_a_pool_that_is_ready_and_whose_types_cannot_be_listed_is_an_error():
    problem = 'plug-in "web": karpenter_list_instance_types lists small twice'
    conditions = (READY, ("InstanceTypesListed", "False", problem))
    server = Lister(nodepools=[an_object("web", *conditions)])
    assert ask(check_objects, server, [KWOKNodeClass]) == [
        (Severity.ERROR, f'NodePool "web": its instance types cannot be listed: {problem}')
    ]


def test_a_pool_that_was_stored_before_v1_is_named_with_the_missing_fields():
    """A CRD of v1 does not check what is stored already: the doctor must read it all the same."""
    pool = an_object("web", READY)
    del pool["spec"]["template"]["spec"]["nodeClassRef"]["group"]
    bare = {"metadata": {"name": "bare"}, "spec": {}, "status": {"conditions": None}}
    server = Lister(nodepools=[pool, bare])
    messages = [message for _, message in ask(check_objects, server, [KWOKNodeClass])]
    field = "spec.template.spec.nodeClassRef"
    stored = "it was stored before karpenter.sh/v1, and is ignored"
    assert messages == [
        f'NodePool "web" has no {field}.group: {stored}',
        'NodePool "bare" has not been reconciled yet',
        f'NodePool "bare" has no {field}.group, {field}.kind: {stored}',
    ]


def test_a_pool_of_an_unserved_kind_is_named():
    pool = an_object("web", READY, kind="EC2NodeClass", group="karpenter.k8s.aws")
    ((severity, message),) = ask(check_objects, Lister(nodepools=[pool]), [KWOKNodeClass])
    assert severity is Severity.WARNING
    assert message.startswith('NodePool "web" refers to a EC2NodeClass.karpenter.k8s.aws, which no')


def static_pool(*conditions, **spec):
    pool = an_object("web", READY, *conditions)
    pool["spec"].update(spec)
    return Lister(nodepools=[pool])


def test_a_static_pool_is_a_warning_while_the_gate_is_off():
    """Its replicas are ignored."""
    ((severity, message),) = ask(check_objects, static_pool(replicas=0), [KWOKNodeClass])
    assert severity is Severity.WARNING
    assert message.startswith('NodePool "web" is static: spec.replicas is ignored')


@pytest.mark.parametrize(
    ("lister", "expected"),
    [
        (static_pool(replicas=3), "1 NodePools and NodeClasses, all of them ready"),
        (
            static_pool(replicas=3, limits={"nodes": "4"}),
            "1 NodePools and NodeClasses, all of them ready",
        ),
        (
            static_pool(replicas=3, limits={"nodes": 3}),
            'NodePool "web": limits.nodes equals spec.replicas (3), so drifted nodes are never',
        ),
        (
            static_pool(("ReplicasHeldBack", "True", "2 of 3 replica(s) are missing"), replicas=3),
            'NodePool "web": 2 of 3 replica(s) are missing',
        ),
    ],
)
def test_a_static_pool_that_cannot_keep_its_replicas_is_a_warning(lister, expected):
    async def check(apis, models):
        return await check_objects(apis, models, static_capacity=True)

    ((severity, message),) = ask(check, lister, [KWOKNodeClass])
    assert message.startswith(expected)
    assert severity is (Severity.OK if "all of them" in expected else Severity.WARNING)


class Named(FakeProvider):
    """Says in its check what cluster it was started for."""

    @hookimpl
    def karpenter_start(self, context):
        self.cluster = context.cluster.name

    @hookimpl
    def karpenter_check(self):
        return [Finding(severity=Severity.OK, message=f"instances of {self.cluster}")]


async def test_the_check_of_a_provider_gets_the_name_of_the_cluster():
    plugins = load_plugins(extra={"web": Named()}, entry_points=())
    settings = load_settings([], {"CLUSTER_NAME": "blue"})
    opening = open_providers(plugins, settings=settings, instance_types_file=None)
    async with opening as providers:
        checks = await providers.check()
    assert [finding.message for finding in checks["web"]] == ["instances of blue"]


def doctor(*arguments, **environment):
    return CliRunner().invoke(build_app(), ["doctor", *arguments], env=environment)


def test_without_a_cluster_the_clouds_are_checked():
    result = doctor("--offline")
    assert result.exit_code == 0, result.output
    assert "loaded: kwok (karpenter-provider-kwok" in result.output
    assert "the simulated cloud has" in result.output


def test_a_cluster_that_does_not_exist_is_an_error():
    result = doctor("--output=json", "--kubeconfig=/nonexistent")
    assert result.exit_code == 1
    last = json.loads(result.output)[-1]
    assert (last["about"], last["severity"]) == ("cluster", "error")
    assert last["message"] == "kubeconfig /nonexistent: no such file"
    assert last["remedy"]


def test_a_setting_that_cannot_be_used_is_an_error():
    result = doctor("--offline", "--kwok-launch-latency=soon")
    assert result.exit_code == 1
    assert "--kwok-launch-latency: must be a duration" in result.output
    assert 'not "soon"' in result.output


def test_settings_that_are_not_in_effect_are_warnings():
    """An unreadable variable of Karpenter's, and gates that do not exist."""
    result = doctor(
        "--offline",
        "--output=json",
        "--feature-gates=NodeRepiar=true,Nonsense=true",
        KUBE_CLIENT_QPS="many",
    )
    results = [each for each in json.loads(result.output) if each["about"] == "settings"]
    assert result.exit_code == 0
    assert [each["severity"] for each in results] == ["warning"] * 3
    assert [each["message"].partition(":")[0] for each in results] == [
        "KUBE_CLIENT_QPS",
        "--feature-gates",
        "--feature-gates",
    ]
    assert "did you mean NodeRepair?" in results[1]["message"]
    assert 'there is no gate "Nonsense"' in results[2]["message"]


def test_a_cloud_s_warning_does_not_fail():
    result = doctor("--offline", "--kwok-state-file=:memory:")
    assert result.exit_code == 0
    assert "WARNING  kwok" in result.output
    assert "remedy: set --kwok-state-file to a file" in result.output
