"""Decides which version of Kubernetes new nodes of a NodeClass have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.parts import condition_met
from karpenter_provider_azure.kubernetes_versions import KubernetesVersion, parse_version
from karpenter_provider_azure.node_class.conditions import KUBERNETES_VERSION_READY

if TYPE_CHECKING:
    from karpenter_core.provider.contract import ClusterFacts
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart

__all__ = ["VersionChoice", "choose_version", "served_version", "version_part"]

RETRY_INTERVAL: Final = timedelta(minutes=15)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChoice:
    """The version of new nodes."""

    version: str
    is_upgrade: bool = False
    """Whether it is newer than that of the status."""
    remark: str = ""


def choose_version(current: str, served: str) -> VersionChoice:
    """Return the version for new nodes; it never becomes lower.

    `current` is that of the status, empty at first; `served` is that of the API server.

    Raises:
        CloudProviderError: `served` is not a version.
    """
    version = served.removeprefix("v")
    numbers = parse_version(version)
    if numbers is None:
        raise CloudProviderError(f'the API server has the version "{served}", which is unreadable')
    current_numbers = parse_version(current) or KubernetesVersion(0, 0)
    if numbers > current_numbers:
        return VersionChoice(version=version, is_upgrade=bool(current))
    if numbers == current_numbers:
        return VersionChoice(version=current)
    return VersionChoice(
        version=current,
        remark=f"nodes keep {current}, though the API server has {version}: there are no downgrades",
    )


def served_version(facts: ClusterFacts) -> str:
    """Return the version of the API server.

    Raises:
        CloudProviderError: it is not known yet.
    """
    facts.require_known("version")
    if not facts.version:
        raise CloudProviderError("the version of the API server is not known")
    return facts.version


def version_part(choice: VersionChoice) -> ResolutionPart:
    """Return the condition, and the version in the status."""
    return condition_met(
        KUBERNETES_VERSION_READY,
        choice.remark,
        status={"kubernetesVersion": choice.version},
        retry_after=RETRY_INTERVAL,
    )
