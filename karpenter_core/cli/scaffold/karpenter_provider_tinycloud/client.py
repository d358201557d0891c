"""The cloud's REST interface, and what its refusals are called here.

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
    """Calls the cloud; what it refuses is raised as a typed error."""

    def __init__(self, endpoint: str, token: str, *, timeout: timedelta) -> None:
        self._endpoint: Final = endpoint.rstrip("/")
        self._token: Final = token
        self._timeout_seconds: Final = timeout.total_seconds()

    def sizes(self) -> Sequence[Json]:
        """List what is sold."""
        return (self._call("GET", "/v1/sizes") or {})["sizes"]

    def image_version(self, name: str) -> str | None:
        """Return the newest version of an image; None when there is no such image."""
        found = self._call("GET", f"/v1/images/{urllib.parse.quote(name, safe='')}")
        return found["version"] if found else None

    def create_machine(self, wish: Mapping[str, object]) -> Json:
        """Create a machine, or return the one that was created with the same token."""
        created = self._call("POST", "/v1/machines", wish)
        if created is None:
            raise CloudProviderError("POST /v1/machines is not known to the cloud")
        return created

    def machines(self, cluster: str) -> Json:
        """List a cluster's machines, and the zones that could not be read."""
        return self._call("GET", f"/v1/machines?cluster={urllib.parse.quote(cluster)}") or {}

    def machine(self, machine_id: str) -> Json | None:
        """Look a machine up; None when it is gone or never was."""
        return self._call("GET", f"/v1/machines/{machine_id}")

    def tag_machine(self, machine_id: str, tags: Mapping[str, str]) -> None:
        """Add tags to a machine."""
        self._call("PATCH", f"/v1/machines/{machine_id}", {"tags": dict(tags)})

    def delete_machine(self, machine_id: str) -> bool:
        """Ask a machine to go; False when it is gone already."""
        return self._call("DELETE", f"/v1/machines/{machine_id}") is not None

    def notices(self, cluster: str) -> Sequence[Json]:
        """List announcements about a cluster's machines."""
        path = f"/v1/notices?cluster={urllib.parse.quote(cluster)}"
        return (self._call("GET", path) or {})["notices"]

    def delete_notice(self, notice_id: str) -> None:
        """Have the cloud forget an announcement."""
        self._call("DELETE", f"/v1/notices/{urllib.parse.quote(notice_id, safe='')}")

    def _call(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> Json | None:
        """Return the answer, or None where the cloud says that there is no such thing."""
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
            raise CloudProviderError(f"{action} came to nothing: {error}") from error


def _refusal(action: str, error: urllib.error.HTTPError) -> CloudProviderError:
    """Give a refusal the type that tells the core what to do next."""
    try:
        body: Json = json.load(error)
    except ValueError:
        body = {}
    message = f"{action}: {body.get('message') or error.reason}"
    match error.code, body.get("code"):
        case ((401 | 403), _):
            return AuthError(message, action=action)
        case 429, _:
            said = error.headers.get("Retry-After")
            wait = None if said is None else timedelta(seconds=float(said))
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
