"""Resolves the images of a NodeClass."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.conditions import find_condition
from karpenter_core.errors import BadInputError, CloudProviderError
from karpenter_core.provider.kit.node_class.parts import condition_met, condition_unmet
from karpenter_provider_azure.api.os_config import ImageFamily
from karpenter_provider_azure.images.families import (
    ImageVariant,
    effective_family,
    image_definitions,
)
from karpenter_provider_azure.images.versions import completed_images, reconciled_images
from karpenter_provider_azure.node_class.conditions import AZURE_ERRORS, IMAGES_READY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.provider.kit.node_class.parts import ResolutionPart
    from karpenter_provider_azure.api.node_class_status import NodeImage
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.images.discovery import ImageReader
    from karpenter_provider_azure.images.families import ImageDefinition
    from karpenter_provider_azure.images.maintenance import MaintenanceWindowReader
    from karpenter_provider_azure.node_class.versions import VersionChoice

__all__ = ["IMAGES_NOT_FOUND", "KUBERNETES_UPGRADE", "SIG_REQUIRED", "ImageResolver", "image_field"]

RETRY_INTERVAL: Final = timedelta(minutes=5)
SIG_REQUIRED: Final = "SIGRequiredForFIPS"
IMAGES_NOT_FOUND: Final = "ImagesNotFound"
KUBERNETES_UPGRADE: Final = "KubernetesUpgrade"
"""The images for a new version of Kubernetes are not found yet."""
_NO_IMAGES: Final = {"images": list[object]()}


def image_field(node_class: AKSNodeClass) -> str:
    """Return the field with its value, which messages begin with."""
    return f'spec.imageFamily "{node_class.spec.image_family}"'


@final
class ImageResolver:
    """Resolves the images of NodeClasses; callable from any thread."""

    def __init__(
        self, reader: ImageReader, window: MaintenanceWindowReader, *, uses_shared_galleries: bool
    ) -> None:
        """`uses_shared_galleries` is the setting `USE_SIG`."""
        self._reader: Final = reader
        self._window: Final = window
        self._uses_shared_galleries: Final = uses_shared_galleries

    def resolve(self, node_class: AKSNodeClass, choice: VersionChoice) -> ResolutionPart:
        """Return the images for a version of Kubernetes, as a condition and in the status.

        Raises:
            CloudProviderError: Azure refused or did not answer.
        """
        field, spec = image_field(node_class), node_class.spec
        if spec.uses_fips and not self._uses_shared_galleries:
            return _unmet(
                SIG_REQUIRED,
                f'spec.fipsMode "{spec.fips_mode}": FIPS images are in shared galleries only '
                "(setting use-sig)",
            )
        variant = ImageVariant(fips=spec.uses_fips, trusted_launch=spec.uses_trusted_launch)
        family = effective_family(spec.image_family, choice.version, variant)
        if family is None:
            known = ", ".join(ImageFamily)
            return _unmet(IMAGES_NOT_FOUND, f"{field}: unknown family; the families are {known}")
        definitions = image_definitions(family, variant)
        if not definitions:
            return _unmet(
                IMAGES_NOT_FOUND,
                f"{field}: AKS has no image of {family} with {_variant_text(variant)}",
            )
        return self._found_part(node_class, choice, definitions)

    def _found_part(
        self,
        node_class: AKSNodeClass,
        choice: VersionChoice,
        definitions: tuple[ImageDefinition, ...],
    ) -> ResolutionPart:
        field = image_field(node_class)
        try:
            newest = self._reader.newest(definitions, choice.version)
        except CloudProviderError as error:
            if not choice.is_upgrade and not _awaits_upgrade(node_class):
                raise
            # The status says the new version now: a later pass must not keep the old images.
            return condition_unmet(
                IMAGES_READY, KUBERNETES_UPGRADE, f"{field}: {AZURE_ERRORS.stable_text(error)}"
            )
        current = node_class.status.images
        known = completed_images(
            newest, current, definitions, is_community=not self._uses_shared_galleries
        )
        if not newest:
            names = ", ".join(it.name for it in definitions)
            # Images that are cleared would come back in their newest versions, outside the window.
            return condition_unmet(
                IMAGES_READY,
                IMAGES_NOT_FOUND,
                f"{field}: {self._reader.source_name} have no version of {names}",
                status={"images": _json_images(known)},
                retry_after=RETRY_INTERVAL,
            )
        is_update, remark = self._is_update(node_class, choice)
        images = reconciled_images(current, known, is_update=is_update)
        return condition_met(
            IMAGES_READY,
            remark,
            status={"images": _json_images(images)},
            retry_after=RETRY_INTERVAL,
        )

    def _is_update(self, node_class: AKSNodeClass, choice: VersionChoice) -> tuple[bool, str]:
        """Return whether images move to their newest versions, and a remark for the condition."""
        if choice.is_upgrade or _needs_newest(node_class):
            return True, ""
        try:
            return self._window.is_open(), ""
        except BadInputError as error:
            return False, f"images are not updated: {error}"


def _needs_newest(node_class: AKSNodeClass) -> bool:
    """Whether the images of the status count for nothing.

    A condition that is False because Azure refused a call for a while is no reason to replace nodes.
    """
    status = node_class.status
    return (
        not status.images
        or find_condition(status.conditions, IMAGES_READY) is None
        or _awaits_upgrade(node_class)
    )


def _awaits_upgrade(node_class: AKSNodeClass) -> bool:
    """Whether the images for the version of the status were not found yet."""
    condition = find_condition(node_class.status.conditions, IMAGES_READY)
    return condition is not None and condition.reason == KUBERNETES_UPGRADE


def _variant_text(variant: ImageVariant) -> str:
    parts = (("FIPS", variant.fips), ("Trusted Launch", variant.trusted_launch))
    return " and ".join(name for name, is_used in parts if is_used)


def _unmet(reason: str, message: str) -> ResolutionPart:
    return condition_unmet(
        IMAGES_READY, reason, message, status=_NO_IMAGES, retry_after=RETRY_INTERVAL
    )


def _json_images(images: Iterable[NodeImage]) -> list[dict[str, object]]:
    return [image.model_dump(mode="json", exclude_none=True) for image in images]
