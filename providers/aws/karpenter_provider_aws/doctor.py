"""Checks the provider's access to AWS for `karpenter doctor`.

Each permission is tried out by a call that changes nothing. EC2 has dry runs for reads and for
launch templates; IAM, SSM, EKS and pricing get a small request, where the answer "there is no such
thing" also shows that the call is permitted. Launches and terminations need a real subject:
launches are tried out for each EC2NodeClass (its condition `ValidationSucceeded`), and a policy
that goes by the tags of instances refuses to terminate or tag an instance that does not exist.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.doctor import (
    AccessDoctor,
    DoctorCheck,
    error_finding,
    ok_finding,
    warning_finding,
)
from karpenter_provider_aws.cluster import version_problem
from karpenter_provider_aws.codes import is_dry_run_success, is_not_found
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.instance_tags import owned_tags, to_tag_list
from karpenter_provider_aws.settings import GATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.contract import Finding
    from karpenter_provider_aws.cluster import ClusterReader
    from karpenter_provider_aws.interruption.queue import InterruptionQueue
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_provider_aws.settings import AwsSettings
    from karpenter_provider_aws.zonal_shift import ZonalShiftReader

__all__ = ["ProviderDoctor"]

_PROBE: Final = "karpenter-doctor"
_PARAMETER: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
_POLICY: Final = "add it to the policy of the controller's role; docs/aws.md has a complete policy"
_REACH: Final = "check that this host reaches the endpoints of AWS (proxy, VPC endpoints, DNS)"
_CREDENTIALS: Final = "give the controller credentials: EKS Pod Identity, a role for its service account, or AWS_PROFILE"


@final
class ProviderDoctor:
    """Checks credentials, permissions, queue and cluster."""

    def __init__(
        self,
        clients: CloudClients,
        *,
        settings: AwsSettings,
        cluster: ClusterReader,
        queue: InterruptionQueue | None,
        shifts: ZonalShiftReader,
        observing: bool = False,
    ) -> None:
        """With `observing` only the permissions of a process that launches nothing are checked."""
        self._clients: Final = clients
        self._observing: Final = observing
        self._settings: Final = settings
        self._cluster: Final = cluster
        self._queue: Final = queue
        self._shifts: Final = shifts

    def check(self) -> tuple[Finding, ...]:
        """Return what is found, in the order in which it should be mended; raises nothing."""
        doctor = AccessDoctor(policy=_POLICY, reach=_REACH, is_granted=_is_granted)
        first = DoctorCheck(
            run=self._check_identity, remedy=_REACH, denied=_CREDENTIALS, setting="set AWS_REGION"
        )
        return doctor.examine(first, permissions=self._tries, checks=self._checks)

    def _checks(self) -> Iterator[DoctorCheck]:
        settings = self._settings
        yield DoctorCheck(
            run=self._check_cluster, remedy="set --cluster-endpoint, and check --cluster-name"
        )
        if not self._observing:  # an observer reads no queue
            queue = settings.interruption_queue
            yield DoctorCheck(
                run=self._check_queue,
                remedy=f'check that the queue "{queue}" is in this account and region',
            )
        if settings.enable_zonal_shift:
            yield DoctorCheck(
                run=self._check_shifts,
                remedy="enable zonal shift for the cluster in EKS, or remove --enable-zonal-shift",
            )

    def _check_identity(self) -> Iterator[Finding]:
        region = self._clients.region
        with core_errors_of("sts:GetCallerIdentity"):
            caller = self._clients.sts.get_caller_identity()
        yield ok_finding(f"{caller.get('Arn', '')} in {region}")
        for gate in self._settings.unknown_gates:
            yield warning_finding(
                f'--aws-feature-gates: there is no gate "{gate}"; it has no effect',
                f"remove it, or name one of {', '.join(GATES)}",
            )

    def _check_cluster(self) -> Finding:
        endpoint, ca_bundle = self._cluster.address()
        # Elsewhere the API server tells it, which is not asked by commands that only look.
        version = self._cluster.version() if self._settings.eks_control_plane else ""
        name = self._settings.cluster_name
        if not ca_bundle:
            return error_finding(
                f'the certificates of cluster "{name}" are not known', "set --cluster-ca-bundle"
            )
        problem = version_problem(version) if version else ""
        if problem:
            return warning_finding(
                problem, "use a release of this provider that supports the version"
            )
        kubernetes = f" (Kubernetes {version})" if version else ""
        return ok_finding(f'cluster "{name}" at {endpoint}{kubernetes}')

    def _check_queue(self) -> Finding:
        if self._queue is None:
            return warning_finding(
                "no interruption queue is set: spot instances end before their pods are evicted",
                "create a queue with its EventBridge rules and name it with --interruption-queue "
                "(docs/aws.md)",
            )
        self._queue.check()
        return ok_finding(f'queue "{self._settings.interruption_queue}" can be read')

    def _check_shifts(self) -> Finding:
        self._shifts.describe()
        return ok_finding("zonal shifts of the cluster can be read")

    def _tries(self) -> Mapping[str, Callable[[], object]]:
        """Return by permission the call that tries it out."""
        ec2 = self._clients.ec2
        tries: dict[str, Callable[[], object]] = {
            "ec2:DescribeCapacityReservations": partial(
                ec2.describe_capacity_reservations, DryRun=True
            ),
            "ec2:DescribeImages": partial(ec2.describe_images, Owners=["self"], DryRun=True),
            "ec2:DescribeInstances": partial(ec2.describe_instances, DryRun=True),
            "ec2:DescribeInstanceStatus": partial(ec2.describe_instance_status, DryRun=True),
            "ec2:DescribeInstanceTypeOfferings": partial(
                ec2.describe_instance_type_offerings, DryRun=True
            ),
            "ec2:DescribeInstanceTypes": partial(ec2.describe_instance_types, DryRun=True),
            "ec2:DescribeLaunchTemplates": partial(ec2.describe_launch_templates, DryRun=True),
            "ec2:DescribePlacementGroups": partial(ec2.describe_placement_groups, DryRun=True),
            "ec2:DescribeSecurityGroups": partial(ec2.describe_security_groups, DryRun=True),
            "ec2:DescribeSpotPriceHistory": partial(ec2.describe_spot_price_history, DryRun=True),
            "ec2:DescribeSubnets": partial(ec2.describe_subnets, DryRun=True),
            "ssm:GetParameter": lambda: self._clients.ssm.get_parameter(Name=_PARAMETER),
        }
        if not self._observing:
            tries["ec2:CreateLaunchTemplate"] = self._try_launch_template
        if not self._settings.isolated_vpc:
            tries["iam:GetInstanceProfile"] = lambda: self._clients.iam.get_instance_profile(
                InstanceProfileName=_PROBE
            )
            tries["iam:ListInstanceProfiles"] = lambda: self._clients.iam.list_instance_profiles(
                MaxItems=1
            )
            if not self._clients.region.startswith("us-gov-"):
                tries["pricing:GetProducts"] = lambda: self._clients.pricing.get_products(
                    ServiceCode="AmazonEC2", MaxResults=1
                )
        return {action: partial(_call, action, call) for action, call in tries.items()}

    def _try_launch_template(self) -> object:
        tags = owned_tags(
            {}, cluster=self._settings.cluster_name, node_class=_PROBE, node_pool=_PROBE
        )
        return self._clients.ec2.create_launch_template(
            LaunchTemplateName=_PROBE,
            LaunchTemplateData={"InstanceType": "m5.large"},
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": to_tag_list(tags)}],
            DryRun=True,
        )


def _call(action: str, call: Callable[[], object]) -> None:
    with core_errors_of(action):
        call()


def _is_granted(error: CloudProviderError) -> bool:
    failure = refusal_behind(error)
    code = "" if failure is None else failure.code
    return is_dry_run_success(code) or is_not_found(code)
