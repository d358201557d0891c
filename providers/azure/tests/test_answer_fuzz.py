"""Whatever Azure answers through its SDK, the controller goes on, and launches once what was asked for.

Answers of the simulated cloud are changed on their way. `KARPENTER_PROPERTY_EXAMPLES=500 pytest
providers/azure/tests/test_answer_fuzz.py` tries many.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from providers.azure.tests.stages import CloudStage
from tests.properties import with_examples
from tests.support.changed_answers import CHANGES, check_one_instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.changed_answers import Change

SIZE = "Standard_D2s_v5"


@pytest.fixture(scope="module")
def cloud_stage() -> Iterator[CloudStage]:
    made = CloudStage({SIZE})
    with made.open():
        yield made


@with_examples(4)
@given(begin=st.booleans(), changes=CHANGES)
def test_a_pod_gets_one_instance_despite_failed_answers(
    cloud_stage: CloudStage, begin: bool, changes: list[Change | None]
) -> None:
    cloud_stage.cloud.reset()
    pool = node_pool_manifest(
        AKSNodeClass, requirements={"node.kubernetes.io/instance-type": [SIZE]}
    )
    check_one_instance(
        cloud_stage.cloud,
        partial(cloud_stage.play, disable_leader_election="true"),
        cloud_stage.node_class(),
        pool,
        changes=changes,
        begin=begin,
    )
