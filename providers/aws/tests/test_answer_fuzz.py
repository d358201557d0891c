"""Whatever AWS answers through boto3, the controller goes on, and launches once what was asked for.

Answers of the simulated cloud are changed on their way. `KARPENTER_PROPERTY_EXAMPLES=500 pytest
providers/aws/tests/test_answer_fuzz.py` tries many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from karpenter_core.testing.provider_cluster import ProviderClusterSpec, node_pool_manifest
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.plugin import AwsProvider
from karpenter_provider_aws.sdk import ClientLimits
from karpenter_simulated_aws.testing import (
    attempts,
    few_types,
    node_class_for,
    simulated_environment,
)
from tests.properties import with_examples
from tests.support.changed_answers import CHANGES, check_one_instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_simulated_aws.cloud import SimulatedAws
    from tests.support.changed_answers import Change

LIMITS = ClientLimits(connect_seconds=1, read_seconds=5, retries=attempts(2))
PLAY = ProviderClusterSpec(
    plugins=lambda: {"aws": AwsProvider(limits=LIMITS)},
    model=EC2NodeClass,
    arguments=("--cluster-name=test", "--eks-control-plane", "--disable-leader-election"),
)


@pytest.fixture(scope="module")
def cloud() -> Iterator[SimulatedAws]:
    with few_types() as aws, simulated_environment(aws):
        yield aws


def node_class(cloud: SimulatedAws) -> dict[str, Any]:
    spec = node_class_for(cloud).model_dump(mode="json", exclude_unset=True)["spec"]
    return {
        "apiVersion": EC2NodeClass.resource.api_version,
        "kind": EC2NodeClass.resource.kind,
        "metadata": {"name": "default"},
        "spec": spec,
    }


UNNAMED_INSTANCE = [None] * 10
UNNAMED_INSTANCE[7] = ("half", 26, 34)
UNNAMED_INSTANCE[9] = ("without", 64, 43)
"""CreateFleet's answer is cut, and the look-up describes the instance without its ID."""

MISTYPED_PARAMETER = [None] * 23
MISTYPED_PARAMETER[:8] = [
    ("odd", 1, 49), None, ("deep", 62, 34), ("status", 400, 0),
    ("cut", 4, 20), ("status", 437, 46), ("status", 295, 36), ("cut", 160, 14),
]  # fmt: skip
MISTYPED_PARAMETER[9], MISTYPED_PARAMETER[11] = ("padded", 500, 48), ("without", 224, 30)
MISTYPED_PARAMETER[14:16] = [("half", 202, 25), ("without", 71, 44)]
MISTYPED_PARAMETER[19:21] = [("odd", 267, 14), ("empty", 500, 40)]
"""The value of an SSM parameter is a boolean, and other answers are lost."""


@with_examples(4)
@example(begin=True, changes=MISTYPED_PARAMETER)
@example(begin=False, changes=UNNAMED_INSTANCE)
@given(begin=st.booleans(), changes=CHANGES)
def test_a_pod_gets_one_instance_despite_failed_answers(
    cloud: SimulatedAws, begin: bool, changes: list[Change | None]
) -> None:
    cloud.reset()
    pool = node_pool_manifest(EC2NodeClass, requirements={"karpenter.sh/capacity-type": ["spot"]})
    check_one_instance(cloud, PLAY.run, node_class(cloud), pool, changes=changes, begin=begin)
