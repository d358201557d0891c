"""Finds a cluster and keeps the credentials for it valid for months.

The official client reads kubeconfigs (contexts, OIDC, TLS) and service-account files; this module
adds what a long-running process needs: failures as one clear error, and credentials that are
renewed. A kubeconfig's token is otherwise read once and then runs out.

Renewal runs in the background, in a task with a time limit. A request waits for it only shortly and
is then sent with the present credentials, which are valid for some minutes more; otherwise one hanging
plug-in would lose the leader lease.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import SettingsError
from karpenter_core.kube.exec_plugin import ExecPlugin
from karpenter_core.kube.kubeconfig import kubeconfig_exists, read_kubeconfig
from karpenter_core.kube.pacing import time_limit

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config.kube_config import KubeConfigLoader

    from karpenter_core.clock import Clock
    from karpenter_core.kube.kubeconfig import Kubeconfig

__all__ = ["Login", "find_login", "find_namespace"]

_SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
_TOKEN_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_NAMESPACE_FILE: Final = _TOKEN_FILE.with_name("namespace")
_DEFAULT_NAMESPACE: Final = "default"
_DEFAULT_KUBECONFIG: Final = "~/.kube/config"
_RENEW_SECONDS: Final = 60.0  # how often credentials are looked at; client-go's token file period
_RENEW_AFTER_REFUSAL_SECONDS: Final = 5.0  # how often a 401 may lead to new ones
_RENEWAL_LIMIT_SECONDS: Final = 60.0
"""A renewal that takes longer is given up, and its credential plug-in killed."""
_LOGIN_LIMIT_SECONDS: Final = 300.0
"""The limit of the first login in a terminal, where its user may have a browser to fill in."""
_PATIENCE_SECONDS: Final = 2.0
"""Time limit of a request's wait for a renewal; well below the lease's deadline of 10 s."""

_log = structlog.stdlib.get_logger("kube.login")


@final
class _TokenFile:
    """The token of a service account, which the kubelet replaces before it expires.

    The client's own hook goes by the wall clock: set back by an hour, it would send the old token for an
    hour, which lives no longer than that.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path: Final = path
        self._clock: Final = clock
        self._read_at: float | None = None

    def refresh(self, configuration: Configuration) -> None:
        """Set the token, read again if that is due.

        Raises:
            OSError, ValueError: the file cannot be read or is empty, as in the middle of a replacement.
        """
        now = self._clock.monotonic()
        if self._read_at is not None and now - self._read_at < _RENEW_SECONDS:
            return
        if not (token := self._path.read_text().strip()):
            raise ValueError(f"the token file {self._path} is empty")
        configuration.api_key["BearerToken"] = f"bearer {token}"
        self._read_at = now

    def expire(self) -> bool:
        """Have the next request read the file; False if it was read a moment ago."""
        now = self._clock.monotonic()
        if self._read_at is not None and now - self._read_at < _RENEW_AFTER_REFUSAL_SECONDS:
            return False
        self._read_at = None
        return True


@dataclass(slots=True)
class Login:
    """A cluster's address and our credentials there.

    `loader` is None in a cluster, where `token_file` is read again.
    """

    configuration: Configuration
    clock: Clock
    loader: KubeConfigLoader | None = None
    in_cluster: bool = False
    token_file: _TokenFile | None = None
    """The service account's token; None outside a cluster."""
    plugin: ExecPlugin | None = None
    """The command that gives our credentials; None when there is none."""
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers of every request, if it acts as another user."""
    renews_by_command: bool = False
    """An exec plug-in without an expiry: run again only when the server refuses."""
    _checked_at: float = 0.0
    _refused_at: float = 0.0
    """Monotonic time of the last refusal that led to new credentials."""
    _renewal: asyncio.Task[None] | None = field(default=None, init=False)
    _is_failing: bool = field(default=False, init=False)
    """Whether the last renewal failed: one warning is enough until the next success."""

    def __post_init__(self) -> None:
        """Count the age of the credentials from here."""
        self._checked_at = self._refused_at = self.clock.monotonic()

    @property
    def credentials(self) -> tuple[str | None, str | None]:
        """The token and the file of the client certificate of the next request."""
        configuration = self.configuration
        return configuration.api_key.get("BearerToken"), configuration.cert_file

    async def authorization(self) -> str | None:
        """Return the Authorization header of the next request, renewed if that is due."""
        age = self.clock.monotonic() - self._checked_at
        if self.loader is not None and age >= _RENEW_SECONDS and not self.renews_by_command:
            renewal = self._start_renewal()
            try:
                async with time_limit(self.clock, _PATIENCE_SECONDS):
                    await asyncio.wait({renewal})
            except TimeoutError:
                _log.debug("continuing with the old credentials while new ones are requested")
        try:
            settings = await self.configuration.auth_settings()
        except Exception as error:  # a token file in the middle of its replacement
            self._note_failure(error)
            value: object = self.configuration.api_key.get("BearerToken")
            return str(value).strip() if value else None
        if self.loader is None:
            self._is_failing = False
        bearer = settings.get("BearerToken")
        return str(bearer["value"]).strip() if bearer else None

    async def renew(self, refused: tuple[str | None, str | None]) -> bool:
        """Get other credentials than the refused ones; False if that was tried a moment ago.

        All requests under way are refused at once when credentials expire: the first gets new ones, and
        the others use them.
        """
        if self.credentials != refused:
            return True
        if self.token_file is not None:
            return self.token_file.expire()
        if self.loader is None:
            return False
        age = self.clock.monotonic() - self._refused_at
        if age < _RENEW_AFTER_REFUSAL_SECONDS:
            if self._renewal is not None:
                await asyncio.wait({self._renewal})
            return self.credentials != refused
        self._refused_at = self.clock.monotonic()
        if self.plugin is not None:
            self.plugin.forget()  # the plug-in's word against the server's
        await asyncio.wait({self._start_renewal()})  # nothing else will do; it has a time limit
        return True

    async def close(self) -> None:
        """End a renewal that still runs, and its command; remove the files of a plug-in's certificate."""
        if self._renewal is not None and not self._renewal.done():
            self._renewal.cancel()
            await asyncio.wait({self._renewal})
        if self.plugin is not None:
            self.plugin.files.remove()

    def _start_renewal(self) -> asyncio.Task[None]:
        """Return the renewal that runs, or a new one."""
        if self._renewal is None or self._renewal.done():
            self._checked_at = self.clock.monotonic()
            self._renewal = asyncio.create_task(self._reload())
        return self._renewal

    async def _reload(self) -> None:
        assert self.loader is not None  # noqa: S101 - for the type checker
        try:
            async with time_limit(self.clock, _RENEWAL_LIMIT_SECONDS):
                await self.loader.load_and_set(self.configuration)
        except TimeoutError as error:
            seconds = round(_RENEWAL_LIMIT_SECONDS)
            self._note_failure(str(error) or f"no answer within {seconds} s")
        except Exception as error:
            self._note_failure(error)
        else:
            if self._is_failing:
                _log.info("renewed credentials again")
            self._is_failing = False
        finally:
            self._checked_at = self.clock.monotonic()  # a hanging plug-in rests between two tries

    def _note_failure(self, why: object) -> None:
        """Log once that the old credentials stay in use; the server may still accept them."""
        if not self._is_failing:
            message = "could not renew credentials; the old ones remain in use"
            _log.warning(message, error=str(why))
        self._is_failing = True


async def find_login(*, kubeconfig: str | None, context: str | None, clock: Clock) -> Login:
    """Find the cluster: the given kubeconfig, $KUBECONFIG, the pod's own cluster, ~/.kube/config.

    Raises:
        SettingsError: there is none, or the one asked for cannot be used.
    """
    paths = _choose_kubeconfig(kubeconfig, context)
    if paths is None:
        return _from_service_account(clock)
    return await _from_kubeconfig(paths, context, clock)


def find_namespace(*, kubeconfig: str | None, context: str | None) -> str:
    """Return the namespace of objects that are named without one, as kubectl finds it.

    It is that of the context of the kubeconfig or, in a pod, the pod's own; `default` if there is none.

    Raises:
        SettingsError: as `find_login`.
    """
    paths = _choose_kubeconfig(kubeconfig, context)
    if paths is not None:
        return read_kubeconfig(paths, context).namespace or _DEFAULT_NAMESPACE
    try:
        return _NAMESPACE_FILE.read_text().strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE


def _choose_kubeconfig(kubeconfig: str | None, context: str | None) -> str | None:
    """Return the kubeconfig to use, or several as a search path; None: the pod's own cluster."""
    explicit = kubeconfig or os.environ.get("KUBECONFIG", "")
    if explicit:
        return explicit
    if context is None and os.environ.get(_SERVICE_HOST) and _TOKEN_FILE.exists():
        return None
    if default := _default_kubeconfig():
        return default
    message = (
        f"no cluster to connect to: no kubeconfig given, KUBECONFIG not set, not in a pod, "
        f"and no file {_DEFAULT_KUBECONFIG}; give --kubeconfig, or set KUBECONFIG"
    )
    raise SettingsError(message)


def _default_kubeconfig() -> str:
    exists = kubeconfig_exists(_DEFAULT_KUBECONFIG)
    return str(Path(_DEFAULT_KUBECONFIG).expanduser()) if exists else ""


def _from_service_account(clock: Clock) -> Login:
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config.config_exception import ConfigException
    from kubernetes.aio.config.incluster_config import (
        SERVICE_TOKEN_FILENAME,
        load_incluster_config,
    )

    configuration = Configuration()
    token_file = _TokenFile(Path(SERVICE_TOKEN_FILENAME), clock)
    try:
        load_incluster_config(client_configuration=configuration)
        token_file.refresh(configuration)
    except (ConfigException, OSError, ValueError) as error:  # ValueError: no text, or empty
        raise SettingsError(f"the pod's service account cannot be used: {error}") from error
    vars(configuration)["refresh_api_key_hook"] = token_file.refresh
    return Login(configuration, clock, in_cluster=True, token_file=token_file)


async def _from_kubeconfig(paths: str, context: str | None, clock: Clock) -> Login:
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config.config_exception import ConfigException
    from kubernetes.aio.config.kube_config import KubeConfigLoader

    chosen = read_kubeconfig(paths, context)
    configuration = Configuration()
    seconds = _LOGIN_LIMIT_SECONDS if sys.stdin.isatty() else _RENEWAL_LIMIT_SECONDS
    plugin: ExecPlugin | None = None
    try:
        loader = KubeConfigLoader(config_dict=chosen.document)
        plugin = _plugin_of(chosen, loader, clock)
        async with time_limit(clock, seconds):
            await loader.load_and_set(configuration)
    except TimeoutError as error:
        who = "" if plugin is None else f'the credential plug-in "{plugin.command}" gave '
        message = f"kubeconfig {paths}: {who}no credentials within {round(seconds)} s"
        raise SettingsError(message) from error
    # The loader lets out whatever a malformed file makes it stumble over.
    except (
        SettingsError,
        ConfigException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
    ) as error:
        raise SettingsError(f"kubeconfig {paths}: {error}") from error
    return Login(
        configuration,
        clock,
        loader=loader,
        plugin=plugin,
        impersonation=chosen.impersonation,
        renews_by_command=plugin is not None and not plugin.has_expiry,
    )


def _plugin_of(chosen: Kubeconfig, loader: KubeConfigLoader, clock: Clock) -> ExecPlugin | None:
    """Return the credential plug-in of the user; from now on the loader runs ours."""
    if chosen.exec_settings is None:
        return None
    plugin = ExecPlugin(chosen.exec_settings, clock=clock, cluster_info=chosen.cluster_info())

    async def load() -> bool:
        if not plugin.is_current:
            try:
                given = await plugin.run()
            except SettingsError as error:
                message = f'the credential plug-in "{plugin.command}": {error}'
                raise SettingsError(message) from error
            if given.token:
                loader.token = f"Bearer {given.token}"
            if given.certificate:
                loader.cert_file, loader.key_file = plugin.files.replace(
                    given.certificate, given.key
                )
        return True

    loader.load_from_exec_plugin = load
    return plugin
