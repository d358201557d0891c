"""`karpenter doctor --take-over` tells beforehand what a take-over changes on AWS, and changes nothing."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from karpenter_core.cli.doctor import take_over
from karpenter_core.cli.doctor.take_over import check_take_over
from karpenter_core.cli.main import build_app
from karpenter_core.errors import ApiError
from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.operator.settings_loader import load_settings
from karpenter_core.provider.contract import Severity
from karpenter_core.provider.host.manager import load_plugins
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_aws.plugin import AwsProvider
from karpenter_provider_aws.sdk import ClientLimits
from karpenter_simulated_aws.testing import attempts
from providers.aws.tests.takeover.reference_state import CLUSTER, ReferenceState, node_class_kind
from tests.support.capacity_quotas import DEFINITION, capacity_quota

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LIMITS = ClientLimits(connect_seconds=1, read_seconds=5, retries=attempts(2))
ARGUMENTS = (f"--cluster-name={CLUSTER}", "--eks-control-plane")
KEPT = "NodeClaims are taken over: none would be replaced or collected"
MAYBE_LAUNCHED = "it may be of a launch that is under way, else it would be terminated"
UNKNOWN_FINALIZER = (
    'NodeClaim "web-1" has the finalizer "example.com/audit", which this controller does not remove'
)
READING = re.compile("(Describe|Get|List|BatchGet|Simulate).*")


@pytest.fixture
def play(few_types_aws, few_types_shared, tmp_path):
    """Play a story on the reference's state, which no controller works on."""

    def plugins():
        return {"aws": AwsProvider(limits=LIMITS, shared=few_types_shared)}

    def run(story: Callable[[Stage], Awaitable[None]]) -> None:
        async def scenario() -> None:
            async with ControllerHarness(plugins, folder=tmp_path, http=True) as harness:
                state = ReferenceState(few_types_aws, harness)
                state.node_class()
                state.node_pool()
                for number in range(2):
                    state.running(f"web-{number}")
                await story(Stage(state, plugins))

        asyncio.run(scenario())

    return run


class Stage:
    """The reference's state, and the doctor who looks at it."""

    def __init__(self, state, plugins):
        self.state, self._plugins = state, plugins
        self.kubeconfig = state.harness.cluster.kubeconfig_path

    async def findings(self, *arguments):
        """Return the severity and the message of each finding."""
        loaded = load_plugins(extra=self._plugins(), entry_points=())
        specs = [spec for each in loaded.settings().values() for spec in each]
        given = (*ARGUMENTS, f"--kubeconfig={self.kubeconfig}", *arguments)
        settings = load_settings(given, {}, plugin_options=specs)
        found = await check_take_over(loaded, settings, {})
        assert all(each.remedy for each in found if each.severity is not Severity.OK)
        return [(each.severity, each.message) for each in found]


def test_a_state_that_is_taken_over_whole_is_one_line(play):
    async def story(stage):
        assert await stage.findings() == [(Severity.OK, f"2 {KEPT}")]

    play(story)


def test_each_difference_has_a_finding_with_its_subject(play):
    async def story(stage):
        state = stage.state
        state.claim("web-2")
        orphan = state.launch()
        state.node_pool("spot")
        state.running("spot-0", pool="spot")
        only_spot = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
        state.harness.cluster.apply(
            [
                {
                    "apiVersion": "karpenter.sh/v1",
                    "kind": "NodePool",
                    "metadata": {"name": "spot"},
                    "spec": {"template": {"spec": {"requirements": [only_spot]}}},
                }
            ]
        )
        state.harness.cluster.patch(
            NODE_CLAIMS,
            "web-1",
            {"metadata": {"finalizers": ["karpenter.sh/termination", "example.com/audit"]}},
        )

        assert await stage.findings() == [
            (Severity.ERROR, 'NodeClaim "spot-0" would count as drifted: RequirementsDrifted'),
            (
                Severity.WARNING,
                f"instance {orphan} has no NodeClaim: {MAYBE_LAUNCHED}",
            ),
            (
                Severity.WARNING,
                'NodeClaim "web-2" has no instance: its launch may be under way',
            ),
            (
                Severity.WARNING,
                UNKNOWN_FINALIZER,
            ),
        ]

    play(story)


def test_objects_that_the_settings_leave_without_an_effect_are_named(play):
    """None is named once its setting is on."""

    async def story(stage):
        requirement = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
        overlays = [
            {
                "apiVersion": "karpenter.sh/v1alpha1",
                "kind": "NodeOverlay",
                "metadata": {"name": f"discount-{number}"},
                "spec": {
                    "requirements": [requirement],
                    "priceAdjustment": "-10%",
                    "weight": number,
                },
            }
            for number in range(1, 7)
        ]
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "gpu", "namespace": "default"},
            "spec": {},
        }
        objects = [*overlays, DEFINITION, capacity_quota("all", cpu="64"), claim]
        stage.state.harness.cluster.apply(objects)
        shown = ", ".join(f'"discount-{number}"' for number in range(1, 6))
        prices = "prices and capacity of instance types would be those of the provider"
        devices = "no node would be launched for the devices that pods ask for"

        ignoring = await stage.findings("--ignore-dra-requests=true")
        heeding = await stage.findings(
            "--feature-gates=NodeOverlay=true", "--capacity-quotas", "--ignore-dra-requests=false"
        )

        no_effect = "would have no effect"
        assert ignoring == [
            (Severity.WARNING, f"NodeOverlay {shown} and 1 more {no_effect}: {prices}"),
            (
                Severity.WARNING,
                f'CapacityQuota "all" {no_effect}: no launch would be limited by it',
            ),
            (Severity.WARNING, f'ResourceClaim "gpu" {no_effect}: {devices}'),
            (Severity.OK, f"2 {KEPT}"),
        ]
        assert heeding == [(Severity.OK, f"2 {KEPT}")]

    play(story)


def test_drift_that_only_the_cloud_shows_is_detected(play):
    async def story(stage):
        state = stage.state
        instance = state.aws.instance(state.instances["web-0"])
        group = state.ec2.create_security_group(
            GroupName="another", Description="another", VpcId=instance.vpc_id
        )
        instance.interfaces = tuple(
            replace(each, groups=((group["GroupId"], "another"),)) for each in instance.interfaces
        )

        assert await stage.findings() == [
            (Severity.ERROR, 'NodeClaim "web-0" would count as drifted: SecurityGroupDrift')
        ]

    play(story)


def test_an_unanswered_question_is_not_taken_for_no(play):
    async def story(stage):
        with stage.state.aws.deny("DescribeInstances"):
            found = await stage.findings()

        assert (Severity.OK, f"2 {KEPT}") not in found
        assert any("instances of aws cannot be listed" in message for _, message in found)
        assert any("is not known" in message for _, message in found)

    play(story)


def test_claims_without_their_pool_or_class_are_not_said_to_be_taken_over(play):
    async def story(stage):
        cluster = stage.state.harness.cluster
        gone = {"metadata": {"labels": {"karpenter.sh/nodepool": "gone"}}}
        cluster.patch(NODE_CLAIMS, "web-1", gone)
        without_pool = await stage.findings()

        (node_class,) = stage.state.objects("EC2NodeClass")
        kind, name = node_class_kind(), node_class["metadata"]["name"]
        cluster.patch(kind, name, {"metadata": {"finalizers": None}})
        cluster.delete(kind, name)
        without_both = await stage.findings()

        of_pool = (
            'NodePool "gone" does not exist, or could not be read: whether NodeClaim "web-1" would be replaced '
            "is not known"
        )
        assert (Severity.WARNING, of_pool) in without_pool
        assert (Severity.OK, f"1 {KEPT}".replace("Claims are", "Claim is")) in without_pool
        of_class = (
            f'EC2NodeClass "{name}" does not exist, or could not be read: whether NodeClaim "web-0" would be '
            "replaced is not known"
        )
        assert (Severity.WARNING, of_class) in without_both
        assert (Severity.OK, f"0 {KEPT}") in without_both

    play(story)


def test_a_cluster_without_node_claims_of_v1_is_not_said_to_be_taken_over(play):
    """Their definition may be of v1beta1 only: nothing is compared then."""

    async def story(stage):
        cluster = stage.state.harness.cluster
        for claim in stage.state.objects("NodeClaim"):
            cluster.patch(
                NODE_CLAIMS, claim["metadata"]["name"], {"metadata": {"finalizers": None}}
            )
            cluster.delete(NODE_CLAIMS, claim["metadata"]["name"])
        cluster.delete(CUSTOM_RESOURCE_DEFINITIONS, "nodeclaims.karpenter.sh")
        findings = await stage.findings()

        message = "the cluster does not know nodeclaims (karpenter.sh/v1)"
        assert (Severity.ERROR, message) in findings
        assert Severity.OK not in {severity for severity, _ in findings}

    play(story)


def lease(namespace, *, seconds):
    """Return a Lease that was renewed this long ago."""
    renewed = datetime.now(UTC) - timedelta(seconds=seconds)
    return {
        "apiVersion": LEASES.api_version,
        "kind": "Lease",
        "metadata": {"name": "karpenter-leader-election", "namespace": namespace},
        "spec": {
            "holderIdentity": "karpenter-7d9_1",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-02T03:04:05.000000Z",
            "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.%fZ}",
        },
    }


@pytest.mark.parametrize(("seconds", "is_held"), [(1, True), (3600, False)])
def test_the_holder_of_the_lease_is_named_while_it_holds_it(play, seconds, is_held):
    async def story(stage):
        stage.state.harness.cluster.apply([lease("kube-system", seconds=seconds)])
        found = await stage.findings()

        message = (
            '"karpenter-7d9_1" holds the Lease kube-system/karpenter-leader-election since '
            "2026-01-02T03:04:05Z: this controller waits until it is free"
        )
        assert ((Severity.WARNING, message) in found) is is_held

    play(story)


@pytest.mark.parametrize(("seconds", "is_held"), [(1, True), (3600, False)])
def test_a_leader_in_another_namespace_is_an_error_while_it_leads(play, seconds, is_held):
    """Both controllers would work at the same time, as their Leases are two."""

    async def story(stage):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karpenter"}}
        stage.state.harness.cluster.apply([namespace, lease("karpenter", seconds=seconds)])
        found = await stage.findings()
        elsewhere = await stage.findings("--leader-election-namespace=karpenter")

        message = (
            '"karpenter-7d9_1" holds the Lease karpenter/karpenter-leader-election, and this controller '
            "would hold kube-system/karpenter-leader-election: both would launch and terminate nodes at the "
            "same time"
        )
        assert ((Severity.ERROR, message) in found) is is_held
        assert Severity.ERROR not in {severity for severity, _ in elsewhere}

    play(story)


def test_leases_that_cannot_be_listed_are_not_taken_for_none(play, monkeypatch):
    async def refused(_, kind):
        raise ApiError(f"{kind.plural} is forbidden", status=403)

    async def story(stage):
        monkeypatch.setattr(take_over, "read_manifests", refused)
        found = await stage.findings("--feature-gates=NodeOverlay=true", "--capacity-quotas")

        (message,) = [text for _, text in found if "Lease" in text]
        assert "whether one leads in another namespace is not known: leases is forbidden" in message

    play(story)


def test_nothing_is_changed(play):
    async def story(stage):
        state = stage.state
        kinds = ("NodeClaim", "NodePool", "Node", "EC2NodeClass")

        def versions():
            return [o["metadata"]["resourceVersion"] for kind in kinds for o in state.objects(kind)]

        before = versions()
        state.aws.calls.clear()

        await stage.findings()

        assert versions() == before
        assert state.aws.calls.all
        assert {c.action for c in state.aws.calls.all if not READING.fullmatch(c.action)} == set()

    play(story)


def test_the_command_prints_findings_and_ends_with_1_for_errors(play):
    async def story(stage):
        orphan = stage.state.launch()
        arguments = ["doctor", "--take-over", "--output=json", "--providers=aws", *ARGUMENTS]
        arguments.append(f"--kubeconfig={stage.kubeconfig}")

        result = await asyncio.to_thread(CliRunner().invoke, build_app(), arguments)

        found = [each for each in json.loads(result.stdout) if each["about"] == "take-over"]
        assert [(each["severity"], each["message"]) for each in found] == [
            ("error", f"instance {orphan} has no NodeClaim, and would be terminated")
        ]
        assert result.exit_code == 1

    play(story)


def test_the_command_refuses_to_compare_without_the_cluster():
    result = CliRunner().invoke(build_app(), ["doctor", "--take-over", "--offline"])

    assert result.exit_code == 2
    assert "omit --offline" in result.output
