"""Checks the provider's access to AWS for `karpenter doctor`.

Each permission is tried out by a call that changes nothing. EC2 has dry runs for reads and for
launch templates; IAM, SSM, EKS and pricing get a small request, where the answer "there is no such
thing" also shows that the call is permitted. Launches and terminations need a real subject:
launches are tried out for each EC2NodeClass (its condition `ValidationSucceeded`), and a policy
that goes by the tags of instances refuses to terminate or tag an instance that does not exist.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    NodeClassNotReadyError,
    SettingsError,
    ThrottledError,
)
from karpenter_core.provider.contract import Finding, Severity
from karpenter_provider_aws.cluster import version_problem
from karpenter_provider_aws.codes import is_dry_run_success, is_not_found
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.instance_tags import owned_tags, to_tag_list
from karpenter_provider_aws.settings import GATES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_provider_aws.cluster import ClusterReader
    from karpenter_provider_aws.interruption.queue import InterruptionQueue
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_provider_aws.settings import AwsSettings
    from karpenter_provider_aws.zonal_shift import ZonalShiftReader

__all__ = ["ProviderDoctor"]

_AT_ONCE: Final = 8
_PROBE: Final = "karpenter-doctor"
_PARAMETER: Final = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
_POLICY: Final = "add it to the policy of the controller's role; docs/aws.md has a complete policy"
_REACH: Final = "check that this host reaches the endpoints of AWS (proxy, VPC endpoints, DNS)"


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
    ) -> None:
        self._clients: Final = clients
        self._settings: Final = settings
        self._cluster: Final = cluster
        self._queue: Final = queue
        self._shifts: Final = shifts

    def check(self) -> tuple[Finding, ...]:
        """Return what is found, in the order in which it should be mended; raises nothing."""
        try:
            region = self._clients.region
        except SettingsError as error:
            return (_error(str(error), "set AWS_REGION"),)
        who = self._check_identity(region)
        if who.severity is Severity.ERROR:
            # Nothing else would be answered; each call would only wait for its time limit.
            return (who,)
        checks: tuple[Callable[[], Finding], ...] = (self._check_cluster, self._check_queue)
        if self._settings.enable_zonal_shift:
            checks = (*checks, self._check_shifts)
        tries = self._tries()
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="aws-doctor") as pool:
            tried = [pool.submit(_try_call, action, call) for action, call in tries.items()]
            checked = [pool.submit(check) for check in checks]
            problems = [
                problem for problem in (each.result() for each in tried) if problem is not None
            ]
        if not problems:
            problems = [_ok(f"all of {len(tries)} permissions that can be tested are granted")]
        return (who, *self._gates(), *problems, *(each.result() for each in checked))

    def _gates(self) -> tuple[Finding, ...]:
        """Return a warning for each gate that does not exist."""
        return tuple(
            Finding(
                severity=Severity.WARNING,
                message=f'--aws-feature-gates: there is no gate "{gate}"; it has no effect',
                remedy=f"remove it, or name one of {', '.join(GATES)}",
            )
            for gate in self._settings.unknown_gates
        )

    def _check_identity(self, region: str) -> Finding:
        try:
            with core_errors_of("sts:GetCallerIdentity"):
                caller = self._clients.sts.get_caller_identity()
        except AuthError as error:
            remedy = "give the controller credentials: EKS Pod Identity, a role for its service "
            return _error(str(error), f"{remedy}account, or AWS_PROFILE")
        except CloudProviderError as error:
            return _error(str(error), _REACH)
        return _ok(f"{caller.get('Arn', '')} in {region}")

    def _check_cluster(self) -> Finding:
        try:
            endpoint, ca_bundle = self._cluster.address()
            # Elsewhere the API server tells it, which is not asked by commands that only look.
            version = self._cluster.version() if self._settings.eks_control_plane else ""
        except (NodeClassNotReadyError, CloudProviderError) as error:
            remedy = "set --cluster-endpoint, and check --cluster-name"
            return _error(str(error), _POLICY if isinstance(error, AuthError) else remedy)
        name = self._settings.cluster_name
        if not ca_bundle:
            return _error(
                f'the certificates of cluster "{name}" are not known',
                "set --cluster-ca-bundle",
            )
        problem = version_problem(version) if version else ""
        if problem:
            return Finding(
                severity=Severity.WARNING,
                message=problem,
                remedy="use a release of this provider that supports the version",
            )
        kubernetes = f" (Kubernetes {version})" if version else ""
        return _ok(f'cluster "{name}" at {endpoint}{kubernetes}')

    def _check_queue(self) -> Finding:
        if self._queue is None:
            return Finding(
                severity=Severity.WARNING,
                message="no interruption queue is set: spot instances end before their pods are evicted",
                remedy="create a queue with its EventBridge rules and name it with "
                "--interruption-queue (docs/aws.md)",
            )
        name = self._settings.interruption_queue
        try:
            self._queue.check()
        except AuthError as error:
            return _error(str(error), _POLICY)
        except CloudProviderError as error:
            return _error(
                str(error), f'check that the queue "{name}" is in this account and region'
            )
        return _ok(f'queue "{name}" can be read')

    def _check_shifts(self) -> Finding:
        try:
            self._shifts.describe()
        except AuthError as error:
            return _error(str(error), _POLICY)
        except CloudProviderError as error:
            remedy = "enable zonal shift for the cluster in EKS, or remove --enable-zonal-shift"
            return _error(str(error), remedy)
        return _ok("zonal shifts of the cluster can be read")

    def _tries(self) -> Mapping[str, Callable[[], object]]:
        """Return by permission the call that tries it out."""
        ec2 = self._clients.ec2_without_retries
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
            "ec2:CreateLaunchTemplate": self._try_launch_template,
            "ssm:GetParameter": lambda: self._clients.ssm.get_parameter(Name=_PARAMETER),
        }
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
        return tries

    def _try_launch_template(self) -> object:
        tags = owned_tags(
            {}, cluster=self._settings.cluster_name, node_class=_PROBE, node_pool=_PROBE
        )
        return self._clients.ec2_without_retries.create_launch_template(
            LaunchTemplateName=_PROBE,
            LaunchTemplateData={"InstanceType": "m5.large"},
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": to_tag_list(tags)}],
            DryRun=True,
        )


def _try_call(action: str, call: Callable[[], object]) -> Finding | None:
    """Make a call; return what is wrong, or None when the permission is there."""
    try:
        with core_errors_of(action):
            call()
    except AuthError as error:
        return _error(str(error), f"{action} is not permitted: {_POLICY}")
    except ThrottledError as error:
        return Finding(severity=Severity.WARNING, message=str(error), remedy="try again later")
    except CloudProviderError as error:
        failure = refusal_behind(error)
        code = "" if failure is None else failure.code
        if is_dry_run_success(code) or is_not_found(code):
            return None
        return _error(str(error), _REACH)
    return None


def _ok(message: str) -> Finding:
    return Finding(severity=Severity.OK, message=message)


def _error(message: str, remedy: str) -> Finding:
    return Finding(severity=Severity.ERROR, message=message, remedy=remedy)
