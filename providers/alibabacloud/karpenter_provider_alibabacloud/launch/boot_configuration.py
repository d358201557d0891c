"""Chooses image and user data for each instance type of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.api.labels import ARCH
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.bootstrap.user_data_builder import UserDataBuilder

__all__ = ["BootConfiguration", "BootSource"]


class BootSource(Protocol):
    """The methods of `CurrentInstanceTypes` that boot configurations use."""

    def image_for(self, node_class: ECSNodeClass) -> Callable[[str], str]:
        """Return a function from a type's name to the image that its nodes boot; empty for none."""
        ...

    def max_pods(self, node_class: ECSNodeClass) -> Callable[[str], int | None]:
        """Return a function from a type's name to its kubelet's limit of pods."""
        ...


@final
class BootConfiguration:
    """Images and user data for claims that are alike; callable from any thread."""

    def __init__(
        self,
        node_class: ECSNodeClass,
        node_claim: NodeClaim,
        *,
        capacity_type: str,
        types: BootSource,
        bootstrapper: UserDataBuilder,
    ) -> None:
        """Look up what the NodeClass says; `node_claim` stands for all of its kind.

        Raises:
            CloudProviderError: nothing is known of instance types.
        """
        self._node_class: Final = node_class
        self._node_claim: Final = node_claim
        self._capacity_type: Final = capacity_type
        self._bootstrapper: Final = bootstrapper
        self._max_pods: Final = types.max_pods(node_class)
        self._texts: Final[dict[tuple[str, int | None], str]] = {}
        self.image_of: Final = types.image_for(node_class)
        """Returns the image of a type by its name; empty for none."""

    def user_data(self, instance_type: InstanceType) -> str:
        """Return the user data of a type's instances, in base64.

        Raises:
            BadInputError, CloudProviderError: as `UserDataBuilder.user_data`; names the NodeClass.
        """
        architecture = instance_type.requirements.single_value(ARCH)
        key = (architecture, self._max_pods(instance_type.name))
        text = self._texts.get(key)
        if text is None:
            try:
                text = self._bootstrapper.user_data(
                    self._node_class,
                    self._node_claim,
                    capacity_type=self._capacity_type,
                    architecture=architecture,
                    max_pods=key[1],
                )
            except BadInputError as error:
                # A NodeClaim tells of it, which is not the object to be mended.
                name = self._node_class.name
                raise BadInputError(f'ECSNodeClass "{name}": {error}') from error
            self._texts[key] = text
        return text
