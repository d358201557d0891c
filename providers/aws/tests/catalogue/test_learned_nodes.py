"""Only nodes of known NodeClasses teach the catalogue how much memory a type has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node, node_claim
from karpenter_provider_aws.catalogue.current_types import CurrentInstanceTypes

READY = SimpleNamespace(
    spec=SimpleNamespace(placement_group_selector=None), status=SimpleNamespace(subnets=("s-1",))
)
WITHOUT_SUBNETS = SimpleNamespace(spec=READY.spec, status=SimpleNamespace(subnets=()))
NODE = node("web", labels={INSTANCE_TYPE: "m5.large"}, capacity={"memory": "7Gi"})


class Parts:
    """A catalogue that learns anything, and all that is asked beside it."""

    ids = frozenset()

    def __init__(self, node_class):
        self._node_class, self.learned = node_class, []

    def node_class(self, name):
        return self._node_class if name == "default" else None

    def found_or_last(self, _selector):
        return None

    def now(self):
        return EPOCH

    def learn_memory(self, node_class, inputs, *, instance_type, image_id, memory_bytes):
        assert (node_class, inputs.now) == (self._node_class, EPOCH)
        self.learned.append((instance_type, image_id, memory_bytes))
        return True


@pytest.mark.parametrize(
    ("node_class", "its_node", "learns"),
    [
        (READY, NODE, True),
        (None, NODE, False),
        (WITHOUT_SUBNETS, NODE, False),
        (READY, node("web", capacity={"memory": "7Gi"}, labels={INSTANCE_TYPE: ""}), False),
    ],
    ids=["ready", "unknown NodeClass", "no subnets", "no type"],
)
def test_a_node_teaches_if_its_node_class_and_type_exist(node_class, its_node, learns):
    parts = Parts(node_class)
    types = CurrentInstanceTypes(
        parts, parts, groups=parts, shifts=lambda: parts, node_classes=parts
    )
    claim = node_claim("web")
    status = claim.status.model_copy(update={"image_id": "ami-1"})

    assert types.learn_memory(claim.model_copy(update={"status": status}), its_node) is learns
    assert parts.learned == [("m5.large", "ami-1", 7 * 2**30)] * learns
