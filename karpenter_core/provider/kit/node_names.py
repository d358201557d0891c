"""Refuses Nodes whose name is not that of the instance they claim to be.

A kubelet chooses the provider ID of its Node. Its name is checked by the API server where the cloud
binds the kubelet's certificate to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.provider.contract import RegistrationRefusal

if TYPE_CHECKING:
    from karpenter_core.api.records import NodeView

__all__ = ["refusal_of_name"]


def refusal_of_name(node: NodeView, expected: str) -> RegistrationRefusal | None:
    """Return the refusal of a Node that is not named as the cloud names its instance."""
    if node.name == expected:
        return None
    return RegistrationRefusal(reason=f'is not named "{expected}" like the instance')
