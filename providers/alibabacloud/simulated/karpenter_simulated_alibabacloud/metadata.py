"""The metadata service of one instance: region and termination time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.server import HttpReply
from karpenter_simulated_alibabacloud.account import to_seconds
from karpenter_simulated_alibabacloud.instances import RECYCLING

if TYPE_CHECKING:
    from karpenter_core.provider.kit.simulated.server import HttpRequest
    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.instances import Instances

__all__ = ["MetadataService"]

_TOKEN: Final = "simulated-token"  # noqa: S105 - it opens nothing
_NOT_FOUND: Final = 404
_FORBIDDEN: Final = 403


@final
class MetadataService:
    """Answers requests of one instance about itself."""

    def __init__(self, account: Account, instances: Instances) -> None:
        self._account: Final = account
        self._instances: Final = instances
        self.instance_id = ""
        """Instance that the metadata describes."""
        self.token_required = False
        """Whether calls without a token are refused (security-hardened mode)."""

    def clear(self) -> None:
        """Be the metadata of no instance."""
        self.instance_id = ""
        self.token_required = False

    def __call__(self, request: HttpRequest) -> HttpReply:
        """Answer one request."""
        if request.method == "PUT" and request.path == "/latest/api/token":
            return _text(200, _TOKEN)
        if self.token_required and request.headers.get("x-aliyun-ecs-metadata-token") != _TOKEN:
            return _text(_FORBIDDEN, "a token is needed")
        found = self._value(request.path.removeprefix("/latest/meta-data/").rstrip("/"))
        return _text(200, found) if found else _text(_NOT_FOUND, "")

    def _value(self, name: str) -> str:
        instance = self._instances.get(self.instance_id)
        match name:
            case "region-id":
                return self._account.region
            case "instance-id":
                return self.instance_id
            case "zone-id" if instance:
                return instance.pool.zone
            case "instance/instance-type" if instance:
                return instance.pool.instance_type
            case "instance/spot/termination-time" if instance and instance.is_spot:
                locked = RECYCLING in self._instances.locks(instance)
                return to_seconds(instance.ends_at) if instance.ends_at and locked else ""
            case _:
                return ""


def _text(status: int, text: str) -> HttpReply:
    return HttpReply(status=status, headers=(("Content-Type", "text/plain"),), body=text.encode())
