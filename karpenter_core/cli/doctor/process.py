"""Checks whether a controller that runs on this host is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.provider.contract import Finding, Severity

if TYPE_CHECKING:
    from karpenter_core.operator.settings import Settings

__all__ = ["check_process"]

PATIENCE_SECONDS: Final = 5.0
ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - what the setting may say
READY: Final = 200
FAILED: Final = "[-]"


async def check_process(settings: Settings) -> Finding:
    """Return the result of `/readyz` at the probe port of these settings."""
    import aiohttp

    host = "127.0.0.1" if settings.bind_address in ANY_ADDRESS else settings.bind_address
    if ":" in host:
        host = f"[{host}]"
    url = f"http://{host}:{settings.health_probe_port}/readyz"
    limits = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=limits) as session,
            session.get(url) as response,
        ):
            status, text = response.status, await response.text()
    except aiohttp.ClientConnectorError:
        return Finding(
            severity=Severity.OK,
            message=f"no controller runs on this host: nothing listens at {url}",
        )
    except (TimeoutError, aiohttp.ClientError) as error:
        return Finding(
            severity=Severity.ERROR,
            message=f"{url} does not answer: {error or 'timed out'}",
            remedy="read the controller's log; it hangs, or another process uses this port",
        )
    failed = [line.removeprefix(FAILED) for line in text.splitlines() if line.startswith(FAILED)]
    if status == READY:
        return Finding(severity=Severity.OK, message=f"ready, says {url}")
    return Finding(
        severity=Severity.ERROR,
        message=f"not ready: {'; '.join(failed) or f'{url} answers with status {status}'}",
        remedy="for kinds that are not fresh, check RBAC and proxies in front of the API server; "
        "for other checks, read the controller's log",
    )
