"""A NodeClass is ready for launches, or an error says why not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from karpenter_core.errors import LaunchFailedError, NodeClassNotReadyError
from karpenter_core.provider.kit.node_class.readiness import not_ready_error
from karpenter_provider_kwok.api import KWOKNodeClass

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def node_class(status="True", *, observed=2, deleted=None, **condition):
    conditions = [{"type": "Ready", "status": status, "observedGeneration": observed, **condition}]
    return KWOKNodeClass.model_validate(
        {
            "metadata": {"name": "blue", "generation": 2, "deletionTimestamp": deleted},
            "status": {"conditions": conditions if status else []},
        }
    )


def test_one_that_is_ready_as_it_is_now_may_be_launched_from():
    assert not_ready_error(node_class()) is None


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (node_class(deleted=NOW), NodeClassNotReadyError, "is being deleted"),
        (
            node_class("False", reason="NoImages", message="none found"),
            NodeClassNotReadyError,
            "is not ready: NoImages: none found",
        ),
        (
            node_class(observed=1),
            NodeClassNotReadyError,
            "has changed (generation 2) since it was ready (generation 1)",
        ),
        (node_class("Unknown"), LaunchFailedError, "is ready is not known yet"),
        (node_class(""), LaunchFailedError, "is ready is not known yet"),
    ],
)
def test_others_are_refused_by_name(given, error, said):
    result = not_ready_error(given)

    assert type(result) is error
    assert f'KWOKNodeClass "blue" {said}' in str(result)
