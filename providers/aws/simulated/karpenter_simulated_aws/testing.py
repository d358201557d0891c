"""The AWS provider as a subject of the conformance kit.

boto3 is the real one; the simulated AWS is another server in this process. It lives for one test,
so that no state reaches the next test.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.base import ObjectMeta
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.testing.simulated_cloud import (
    changed_environment,
    cloud_troubles,
    partial_listing,
)
from karpenter_core.testing.subject import CloudTrouble, ConformanceSubject
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.plugin import AwsProvider
from karpenter_provider_aws.sdk import ClientLimits, CloudClients
from karpenter_simulated_aws.cloud import SimulatedAws
from karpenter_simulated_aws.protocol import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping
    from contextlib import AbstractContextManager

    from karpenter_provider_aws.sdk import SharedClients

__all__ = [
    "attempts",
    "few_types",
    "node_class_for",
    "simulated_environment",
    "subject",
    "subject_on",
]

_INSTANCE_TYPES: Final = frozenset(
    {"m5.large", "m5.xlarge", "m5.metal", "m6g.large", "c5.large", "t3.large"}
)
"""Few, as each test reads them anew."""


def attempts(count: int) -> RetryPolicy:
    """Return the policy of clients that make so many attempts of a call."""
    return RetryPolicy(throttled_attempts=count, transient_attempts=count)


_LIMITS: Final = ClientLimits(connect_seconds=1, read_seconds=2, retries=attempts(2))
_PATIENCE: Final = timedelta(seconds=20)
"""Above what clients take to give up on the calls of one hook, one after the other."""


def simulated_environment(aws: SimulatedAws) -> AbstractContextManager[None]:
    """Lead boto3 of this process to a simulated AWS while the context is open."""
    return changed_environment(aws.environment)


def node_class_for(aws: SimulatedAws, **spec: object) -> EC2NodeClass:
    """Return an EC2NodeClass that fits the simulated world; `spec` fields, as JSON, come on top."""
    discovery = {"tags": {"karpenter.sh/discovery": aws.world.cluster}}
    fields: dict[str, object] = {
        "role": aws.world.role,
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [discovery],
        "securityGroupSelectorTerms": [discovery],
        **spec,
    }
    return EC2NodeClass(
        metadata=ObjectMeta(name="default", uid="uid-of-class", generation=1),
        spec=EC2NodeClass.model_validate({"spec": fields}).spec,
    )


@contextmanager
def subject() -> Generator[ConformanceSubject]:
    """Start a simulated AWS and return the provider on it."""
    with few_types() as aws, simulated_environment(aws):
        yield subject_on(aws)


def few_types() -> SimulatedAws:
    """Return a simulated AWS, not yet started, that sells little."""
    return SimulatedAws(instance_types=_INSTANCE_TYPES)


def subject_on(aws: SimulatedAws, *, shared: SharedClients | None = None) -> ConformanceSubject:
    """Return the provider on a simulated AWS to which boto3 of this process is led.

    Making clients takes longer than most rules: with `shared` those of one rule serve the next.
    """
    return _CloudControls(aws, shared=shared).subject()


@final
class _CloudControls:
    """Controls a simulated AWS for the conformance kit."""

    def __init__(self, aws: SimulatedAws, *, shared: SharedClients | None) -> None:
        self._aws: Final = aws
        self._shared: Final = shared
        self._troubles: Final[
            Mapping[CloudTrouble, Callable[[], AbstractContextManager[object]]]
        ] = {
            **cloud_troubles(
                aws,
                launches=("CreateFleet",),
                throttled=AwsError("RequestLimitExceeded", "", status=503),
            ),
            CloudTrouble.QUOTA: self._quota,
            CloudTrouble.TOKEN_IN_PROGRESS: self._token_in_progress,
            CloudTrouble.PARTIAL_LISTING: lambda: partial_listing(
                aws, "DescribeInstances", has_token=lambda parameters: "NextToken" in parameters
            ),
        }

    def subject(self) -> ConformanceSubject:
        """Return the provider under test."""
        aws = self._aws
        return ConformanceSubject(
            name="aws",
            make=lambda: AwsProvider(limits=_LIMITS, shared=self._shared),
            node_class=node_class_for(aws),
            settings={
                "cluster-endpoint": "https://api.simulated",
                "interruption-queue": aws.world.queue,
            },
            troubles=frozenset(self._troubles),
            trouble=lambda _plugin, wanted: self._troubles[wanted](),
            patience=_PATIENCE,
            node_manifest=lambda _plugin, provider_id: aws.node(provider_id),
            list_resources=self._held,
            create_foreign_instance=lambda _plugin: aws.launch_foreign(),
            interrupt=lambda _plugin, provider_id: aws.messages.spot_interruption(
                aws.instance(provider_id)
            ),
            protect=lambda _plugin, provider_id: self._protected(provider_id),
            drift=self._drift,
            changed_node_class=node_class_for(aws, detailedMonitoring=True),
            unusable_node_classes={
                "subnetSelectorTerms": node_class_for(
                    aws, subnetSelectorTerms=[{"tags": {"nobody": "has-this"}}]
                ),
                "sg-0123456789": node_class_for(
                    aws, securityGroupSelectorTerms=[{"id": "sg-0123456789"}]
                ),
                "al2023@v20200101": node_class_for(
                    aws, amiSelectorTerms=[{"alias": "al2023@v20200101"}]
                ),
            },
            sdk_modules=("boto3", "botocore"),
        )

    def _held(self, _plugin: object) -> Collection[str]:
        return self._aws.held().all

    def _drift(self, _plugin: object, provider_id: str) -> None:
        """Move an instance into another security group, as an operator might."""
        instance = self._aws.instance(provider_id)
        clients = CloudClients(limits=_LIMITS, every_operation=True)
        group = clients.ec2.create_security_group(
            GroupName="somebody-elses", Description="another", VpcId=instance.vpc_id
        )
        clients.close()
        instance.interfaces = tuple(
            replace(each, groups=((group["GroupId"], "somebody-elses"),))
            for each in instance.interfaces
        )

    @contextmanager
    def _protected(self, provider_id: str) -> Generator[None]:
        self._aws.protect(provider_id)
        try:
            yield
        finally:
            self._aws.protect(provider_id, protected=False)

    @contextmanager
    def _quota(self) -> Generator[None]:
        self._aws.capacity.limit_vcpus(0)
        self._aws.capacity.limit_spot_instances(0)
        try:
            yield
        finally:
            self._aws.capacity.clear()

    @contextmanager
    def _token_in_progress(self) -> Generator[None]:
        """Lose the reply of a launch, and refuse its token for as long as the context is open."""
        lost = self._aws.lose_replies("CreateFleet")
        with lost, self._aws.fail("CreateFleet", code="IncorrectState", times=None):
            yield
