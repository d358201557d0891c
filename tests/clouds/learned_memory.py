"""Asks a started provider what memory it learns of a Node, with stand-ins for its parts."""

from __future__ import annotations

from types import SimpleNamespace

from karpenter_core.api.labels import INSTANCE_TYPE


def learned_memory(provider_class, status, instance_type):
    """Return the amounts that are learned of a Node without capacity.

    `status` has the fields of its NodeClass's status; None: there is no such NodeClass.
    """
    learned = []
    found = None if status is None else SimpleNamespace(status=SimpleNamespace(**status))
    types = SimpleNamespace(
        learn_memory=lambda *_, **fields: learned.append(fields["memory_bytes"])
    )
    provider = SimpleNamespace(
        node_classes=SimpleNamespace(node_class=lambda _name: found),
        parts=SimpleNamespace(catalogue=SimpleNamespace(types=types)),
    )
    claim = SimpleNamespace(
        spec=SimpleNamespace(node_class_ref=SimpleNamespace(name="default")),
        status=SimpleNamespace(image_id="i"),
    )
    node = SimpleNamespace(labels={INSTANCE_TYPE: instance_type}, capacity={})
    provider_class._learn_memory(provider, claim, node)
    return learned
