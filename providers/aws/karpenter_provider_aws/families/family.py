"""Calls the module of an AMI family for its images and user data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_provider_aws.api.families import AmiFamily
from karpenter_provider_aws.families import al2, al2023, bottlerocket, custom, windows
from karpenter_provider_aws.families.traits import TRAITS

if TYPE_CHECKING:
    from karpenter_provider_aws.api.families import AmiAlias
    from karpenter_provider_aws.families.bootstrap import BootstrapInput
    from karpenter_provider_aws.families.images import ImageParameter

__all__ = ["image_parameters", "user_data"]


def image_parameters(alias: AmiAlias, kubernetes_version: str) -> tuple[ImageParameter, ...]:
    """Return the SSM parameters of an alias's images, for a minor version such as `1.33`.

    Not every version has all of them: one that is missing is left out.
    """
    match alias.family:
        case AmiFamily.AL2:
            return al2.image_parameters(alias.version, kubernetes_version)
        case AmiFamily.AL2023:
            return al2023.image_parameters(alias.version, kubernetes_version)
        case AmiFamily.BOTTLEROCKET:
            return bottlerocket.image_parameters(alias.version, kubernetes_version)
        case AmiFamily.WINDOWS2019 | AmiFamily.WINDOWS2022 | AmiFamily.WINDOWS2025:
            return windows.image_parameters(TRAITS[alias.family], kubernetes_version)
        case AmiFamily.CUSTOM:
            return ()


def user_data(family: AmiFamily, bootstrap: BootstrapInput) -> str:
    """Return the user data of this family, as text.

    The same input gives the same text, byte for byte.

    Raises:
        BadInputError: the user's text cannot be merged with ours.
        NodeClassNotReadyError: AL2023, and the CIDR of the cluster's services is not known.
    """
    match family:
        case AmiFamily.AL2:
            return al2.user_data(bootstrap)
        case AmiFamily.AL2023:
            return al2023.user_data(bootstrap)
        case AmiFamily.BOTTLEROCKET:
            return bottlerocket.user_data(bootstrap)
        case AmiFamily.WINDOWS2019 | AmiFamily.WINDOWS2022 | AmiFamily.WINDOWS2025:
            return windows.user_data(bootstrap)
        case AmiFamily.CUSTOM:
            return custom.user_data(bootstrap)
