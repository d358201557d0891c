"""Finding a cluster and proving who we are, and going on proving it for months.

The official client reads kubeconfigs (contexts, exec plug-ins, OIDC, TLS) and service-account
files; this module adds what a long-running process needs: failures as one clear error, and
credentials that are renewed. A kubeconfig's token is otherwise read once and then runs out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import structlog
import yaml

from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kubernetes.aio.client import Configuration

    from karpenter_core.clock import Clock

__all__ = ["Login", "find_login"]

_SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
_TOKEN_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_DEFAULT_KUBECONFIG: Final = "~/.kube/config"
_RENEW_SECONDS: Final = 60.0  # how often credentials are looked at; client-go's token file period
_RENEW_AFTER_REFUSAL_SECONDS: Final = 5.0  # how often a 401 may lead to new ones

_log = structlog.stdlib.get_logger("kube.login")


class _Loader(Protocol):
    """The part of the client's kubeconfig loader that we use."""

    async def load_and_set(self, client_configuration: Configuration) -> None: ...


@dataclass(slots=True)
class Login:
    """A cluster's address and our credentials there.

    `loader` is None in a cluster, where the client's own hook re-reads the token file.
    """

    configuration: Configuration
    clock: Clock
    loader: _Loader | None = None
    in_cluster: bool = False
    renews_by_command: bool = False
    """An exec plug-in without an expiry: run again only when the server refuses."""
    _looked_at: float = 0.0

    def __post_init__(self) -> None:
        """Count the age of the credentials from here."""
        self._looked_at = self.clock.monotonic()

    async def authorization(self) -> str | None:
        """Return the Authorization header of the next request, renewed if that is due."""
        age = self.clock.monotonic() - self._looked_at
        if self.loader is not None and age >= _RENEW_SECONDS and not self.renews_by_command:
            await self._reload()
        settings = await self.configuration.auth_settings()
        bearer = cast("dict[str, Any]", settings).get("BearerToken")
        return str(bearer["value"]).strip() if bearer else None

    async def renew(self) -> bool:
        """Get new credentials after a refusal; False if that was tried a moment ago."""
        age = self.clock.monotonic() - self._looked_at
        if self.loader is None or age < _RENEW_AFTER_REFUSAL_SECONDS:
            return False
        if hasattr(self.loader, "exec_plugin_expiry"):
            delattr(self.loader, "exec_plugin_expiry")  # the plug-in's word against the server's
        await self._reload()
        return True

    async def _reload(self) -> None:
        self._looked_at = self.clock.monotonic()
        if self.loader is None:
            return
        try:
            await self.loader.load_and_set(self.configuration)
        except Exception as error:  # the old credentials may still do; the server decides
            _log.warning("could not renew credentials", error=str(error))


async def find_login(*, kubeconfig: str | None, context: str | None, clock: Clock) -> Login:
    """Find the cluster: the given kubeconfig, $KUBECONFIG, the pod's own cluster, ~/.kube/config.

    Raises:
        SettingsError: there is none, or the one asked for cannot be used.
    """
    explicit = kubeconfig or os.environ.get("KUBECONFIG", "")
    if explicit:
        return await _from_kubeconfig(explicit, context, clock)
    if context is None and os.environ.get(_SERVICE_HOST) and _TOKEN_FILE.exists():
        return _from_service_account(clock)
    if default := _default_kubeconfig():
        return await _from_kubeconfig(default, context, clock)
    message = (
        f"no cluster to connect to: no kubeconfig given, KUBECONFIG not set, not in a pod, "
        f"and no file {_DEFAULT_KUBECONFIG}"
    )
    raise SettingsError(message)


def _default_kubeconfig() -> str:
    path = Path(_DEFAULT_KUBECONFIG).expanduser()
    return str(path) if path.exists() else ""


def _from_service_account(clock: Clock) -> Login:
    from kubernetes.aio import config
    from kubernetes.aio.client import Configuration

    configuration = Configuration()
    try:
        cast("Any", config).load_incluster_config(client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        raise SettingsError(f"the pod's service account cannot be used: {error}") from error
    return Login(configuration, clock, in_cluster=True)


async def _from_kubeconfig(paths: str, context: str | None, clock: Clock) -> Login:
    from kubernetes.aio import config
    from kubernetes.aio.client import Configuration

    _check_files(paths, context)
    configuration = Configuration()
    load = cast("Any", config).load_kube_config
    try:
        loader = await cast(
            "Awaitable[Any]",
            load(
                config_file=paths,
                context=context,
                client_configuration=configuration,
                persist_config=False,
            ),
        )
    # The loader lets out whatever a malformed file makes it stumble over.
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError) as error:
        raise SettingsError(f"kubeconfig {paths}: {error}") from error
    user: Any = getattr(loader, "_user", None) or {}
    has_command = "exec" in user
    if has_command and "BearerToken" not in configuration.api_key and not configuration.cert_file:
        command: str = user["exec"]["command"]
        message = f'kubeconfig {paths}: the credential plug-in "{command}" gave no credentials'
        raise SettingsError(message)
    return Login(
        configuration,
        clock,
        loader=loader,
        renews_by_command=has_command and not hasattr(loader, "exec_plugin_expiry"),
    )


def _check_files(paths: str, context: str | None) -> None:
    """Refuse files that are missing, no YAML, or lack the context, before the loader stumbles."""
    contexts: set[str] = set()
    current = ""
    found = False
    for path in filter(None, paths.split(os.pathsep)):
        file = Path(path).expanduser()
        if not file.exists():
            continue
        found = True
        try:
            content: Any = yaml.safe_load(file.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise SettingsError(f"kubeconfig {path}: {error}") from error
        if not isinstance(content, dict):
            raise SettingsError(f"kubeconfig {path}: not a kubeconfig")
        document = cast("dict[str, Any]", content)
        current = current or str(document.get("current-context") or "")
        contexts.update(str(entry.get("name")) for entry in document.get("contexts") or ())
    if not found:
        raise SettingsError(f"kubeconfig {paths}: no such file")
    wanted = context or current
    if not wanted:
        raise SettingsError(f"kubeconfig {paths}: no current-context, and no context given")
    if wanted not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise SettingsError(f'kubeconfig {paths}: no context "{wanted}"; there are: {known}')
