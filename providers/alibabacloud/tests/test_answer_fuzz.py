"""Whatever Alibaba Cloud answers through its SDKs, the controller goes on, and launches once what was asked for.

Answers of the simulated cloud are changed on their way. `KARPENTER_PROPERTY_EXAMPLES=500 pytest
providers/alibabacloud/tests/test_answer_fuzz.py` tries many.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_simulated_alibabacloud.types import realistic_types
from providers.alibabacloud.tests.stages import CloudStage
from tests.properties import with_examples
from tests.support.changed_answers import CHANGES, check_one_instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.changed_answers import Change

SIZE = "ecs.g7.large"


@pytest.fixture(scope="module")
def cloud_stage() -> Iterator[CloudStage]:
    made = CloudStage([it for it in realistic_types() if it.name == SIZE])
    with made.open():
        yield made


@with_examples(4)
@given(begin=st.booleans(), changes=CHANGES)
def test_a_pod_gets_one_instance_despite_failed_answers(
    cloud_stage: CloudStage, begin: bool, changes: list[Change | None]
) -> None:
    cloud_stage.cloud.reset()
    pool = node_pool_manifest(
        ECSNodeClass, requirements={"node.kubernetes.io/instance-type": [SIZE]}
    )
    check_one_instance(
        cloud_stage.cloud,
        partial(cloud_stage.play, arguments=["--disable-leader-election"]),
        cloud_stage.node_class(),
        pool,
        changes=changes,
        begin=begin,
    )
