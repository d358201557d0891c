"""Calls the cloud's REST API; raises its refusals as typed errors.

Every call has a time limit, shorter than that of the hooks. The client keeps no state, so it may be
used from any thread.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, final

from karpenter_core.errors import (
    AuthError,
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    TerminationRefusedError,
    ThrottledError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Json", "TinyCloudClient"]

Json = dict[str, Any]


@final
class TinyCloudClient:
    """Calls the cloud; raises a typed error for each refusal."""

    def __init__(self, endpoint: str, token: str, *, timeout: timedelta) -> None:
        self._endpoint: Final = endpoint.rstrip("/")
        self._token: Final = token
        self._timeout_seconds: Final = timeout.total_seconds()

    def sizes(self) -> Sequence[Json]:
        """List the VM sizes."""
        return (self._call("GET", "/v1/sizes") or {})["sizes"]

    def image_version(self, name: str) -> str | None:
        """Return the newest version of an image; None when there is no such image."""
        found = self._call("GET", f"/v1/images/{urllib.parse.quote(name, safe='')}")
        return found["version"] if found else None

    def create_vm(self, wish: Mapping[str, object]) -> Json:
        """Create a VM, or return the one that was created with the same token."""
        created = self._call("POST", "/v1/vms", wish)
        if created is None:
            raise CloudProviderError("POST /v1/vms is not known to the cloud")
        return created

    def vms(self, cluster: str) -> Json:
        """List a cluster's VMs, and the zones that could not be read."""
        return self._call("GET", f"/v1/vms?cluster={urllib.parse.quote(cluster)}") or {}

    def vm(self, vm_id: str) -> Json | None:
        """Fetch a VM; None if it does not exist."""
        return self._call("GET", f"/v1/vms/{vm_id}")

    def tag_vm(self, vm_id: str, tags: Mapping[str, str]) -> None:
        """Add tags to a VM."""
        self._call("PATCH", f"/v1/vms/{vm_id}", {"tags": dict(tags)})

    def delete_vm(self, vm_id: str) -> bool:
        """Start the deletion of a VM; False if it does not exist."""
        return self._call("DELETE", f"/v1/vms/{vm_id}") is not None

    def notices(self, cluster: str) -> Sequence[Json]:
        """List the interruption notices for a cluster's VMs."""
        path = f"/v1/notices?cluster={urllib.parse.quote(cluster)}"
        return (self._call("GET", path) or {})["notices"]

    def delete_notice(self, notice_id: str) -> None:
        """Delete an interruption notice."""
        self._call("DELETE", f"/v1/notices/{urllib.parse.quote(notice_id, safe='')}")

    def _call(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> Json | None:
        """Return the answer as JSON; None for 404."""
        request = urllib.request.Request(  # noqa: S310 - the endpoint is the operator's setting
            self._endpoint + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
            method=method,
        )
        action = f"{method} {path.partition('?')[0]}"
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_seconds) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:  # noqa: PLR2004
                    return None
                raise _refusal(action, error) from error
        except (OSError, ValueError) as error:  # refused, reset, timed out, or not JSON
            raise CloudProviderError(f"{action} failed: {error}") from error


def _refusal(action: str, error: urllib.error.HTTPError) -> CloudProviderError:
    """Return the typed error for an HTTP error."""
    try:
        body: Json = json.load(error)
    except ValueError:
        body = {}
    message = f"{action}: {body.get('message') or error.reason}"
    match error.code, body.get("code"):
        case ((401 | 403), _):
            return AuthError(message, action=action)
        case 429, _:
            seconds = error.headers.get("Retry-After")
            wait = None if seconds is None else timedelta(seconds=float(seconds))
            return ThrottledError(message, retry_after=wait)
        case 409, "token-used":
            return LaunchFailedError(message, reason="InstanceGone")
        case 409, "protected":
            return TerminationRefusedError(message)
        case 409, "sold-out":
            return InsufficientCapacityError(message)
        case 409, "quota":
            return InsufficientCapacityError(message, scope=ExhaustedScope.REGION)
        case 422, _:
            return LaunchFailedError(message, reason="InvalidRequest")
        case _:
            return CloudProviderError(message)
