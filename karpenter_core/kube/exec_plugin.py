"""Runs a kubeconfig's credential plug-in (`exec`) and kills one that hangs.

The official client runs plug-ins too, but loses sight of the process: a plug-in that waits for a
dead network blocks its caller for ever, and outlives it when the caller gives up.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.clock import Clock

__all__ = ["Credentials", "ExecPlugin", "KeyPairFiles"]

_RENEW_BEFORE: Final = timedelta(minutes=5)  # as the official client does
_REAP_SECONDS: Final = 1.0
"""Time limit for the end of a killed plug-in: another process may hold its output open."""
MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""The most that a plug-in may write: tokens and certificates have kilobytes."""
_PIECE_BYTES: Final = 65536
_SHOWN: Final = 500
"""Number of characters of the plug-in's output in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Credentials of a plug-in: a token, a client certificate with its key, or both."""

    token: str = field(repr=False)
    certificate: str
    key: str = field(repr=False)
    expires: datetime | None


@final
class KeyPairFiles:
    """The last client certificate of a plug-in and its key, as private files: TLS reads files alone."""

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None

    def replace(self, certificate: str, key: str) -> tuple[str, str]:
        """Write both to files of new names, and remove those of before.

        Raises:
            OSError: they cannot be written; those of before stay.
        """
        folder = TemporaryDirectory(prefix="karpenter-")
        written = [Path(folder.name, name) for name in ("client.crt", "client.key")]
        for path, text in zip(written, (certificate, key), strict=True):
            path.touch(mode=0o600)
            path.write_text(text)
        before, self._folder = self._folder, folder
        if before is not None:
            before.cleanup()
        return str(written[0]), str(written[1])

    def remove(self) -> None:
        """Remove the files: connections that are open need them no more."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


@final
class ExecPlugin:
    """One credential plug-in; every run ends with its process."""

    def __init__(
        self, settings: JsonMapping, *, clock: Clock, cluster_info: JsonMapping | None = None
    ) -> None:
        """Read the section `exec` of a kubeconfig user; `cluster_info` is handed to the command.

        Raises:
            SettingsError: it lacks the command or the API version.
        """
        for name in ("command", "apiVersion"):
            if not isinstance(settings.get(name), str):
                raise SettingsError(f"exec: {name} is missing")
        self.command: Final[str] = settings["command"]
        self.files: Final = KeyPairFiles()
        self._clock: Final = clock
        self._settings: Final = settings
        self._cluster_info: Final = cluster_info
        self._last: Credentials | None = None

    @property
    def has_expiry(self) -> bool:
        """Whether the last credentials say how long they are good for."""
        return self._last is not None and self._last.expires is not None

    @property
    def is_current(self) -> bool:
        """Whether the last credentials stay valid for some minutes, by their expiry time."""
        expires = None if self._last is None else self._last.expires
        return expires is not None and expires - self._clock.now() > _RENEW_BEFORE

    def forget(self) -> None:
        """Run the command again next time, whatever the last credentials said."""
        self._last = None

    async def run(self) -> Credentials:
        """Run the command; cancelling this call kills it.

        Raises:
            SettingsError: it cannot be started, failed, or gave no credentials.
        """
        is_interactive = sys.stdin.isatty() and self._settings.get("interactiveMode") != "Never"
        start = asyncio.create_task(
            asyncio.create_subprocess_exec(
                self.command,
                *(str(argument) for argument in self._settings.get("args") or ()),
                env=self._environment(is_interactive=is_interactive),
                stdin=None if is_interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # A plug-in that asks its user to log in says so there.
                stderr=None if is_interactive else asyncio.subprocess.PIPE,
                start_new_session=not is_interactive,
            )
        )
        try:
            process = await asyncio.shield(start)
        except OSError as error:
            raise SettingsError(f"cannot be started: {error}") from error
        except asyncio.CancelledError:
            # Its process may run already; asyncio would kill that one, but not its children.
            await asyncio.wait({start}, timeout=_REAP_SECONDS)
            if start.done() and not start.exception():
                await _end(start.result(), with_children=not is_interactive)
            start.cancel()
            raise
        try:
            output, errors = await _bounded_output(process)
        except BaseException:
            await _end(process, with_children=not is_interactive)
            raise
        if process.returncode != 0:
            words = (errors or b"").decode(errors="replace").strip()[-_SHOWN:]
            raise SettingsError(f"exit code {process.returncode}{f': {words}' if words else ''}")
        self._last = self._read(output)
        return self._last

    def _environment(self, *, is_interactive: bool) -> dict[str, str]:
        environment = dict(os.environ)
        for entry in self._settings.get("env") or ():
            environment[str(entry["name"])] = str(entry.get("value") or "")
        spec: JsonObject = {"interactive": is_interactive}
        if self._cluster_info is not None:
            spec["cluster"] = self._cluster_info
        environment["KUBERNETES_EXEC_INFO"] = json.dumps(
            {"apiVersion": self._settings["apiVersion"], "kind": "ExecCredential", "spec": spec}
        )
        return environment

    def _read(self, output: bytes) -> Credentials:
        try:
            answer: object = json.loads(output)
        except (ValueError, RecursionError) as error:
            raise SettingsError("its output is not JSON") from error
        whole = cast("JsonObject", answer) if isinstance(answer, dict) else {}
        status: object = whole.get("status")
        if not isinstance(status, dict):
            raise SettingsError("its output has no status")
        version = whole.get("apiVersion")
        if version != self._settings["apiVersion"]:
            expected_version = self._settings["apiVersion"]
            raise SettingsError(f'its output has API version "{version}", not "{expected_version}"')
        return _credentials(cast("JsonObject", status))


def _credentials(status: JsonMapping) -> Credentials:
    read = Credentials(
        token=str(status.get("token") or ""),
        certificate=str(status.get("clientCertificateData") or ""),
        key=str(status.get("clientKeyData") or ""),
        expires=_expiry(status.get("expirationTimestamp")),
    )
    if not read.token and not read.certificate:
        raise SettingsError("it returned neither a token nor a client certificate")
    if bool(read.certificate) != bool(read.key):
        raise SettingsError(
            "it returned a client certificate without its key, or a key without a certificate"
        )
    return read


def _expiry(value: object) -> datetime | None:
    if not value:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise SettingsError(f'expirationTimestamp "{value}" is not a time') from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


async def _bounded_output(process: asyncio.subprocess.Process) -> tuple[bytes, bytes]:
    """Return what a process writes until it ends.

    Raises:
        SettingsError: it writes more than any credentials have.
    """
    streams = (process.stdout, process.stderr)
    readers = [asyncio.create_task(_read_to_end(stream)) for stream in streams]
    try:
        output, errors = await asyncio.gather(*readers)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    await process.wait()
    return output, errors


async def _read_to_end(stream: asyncio.StreamReader | None) -> bytes:
    read = bytearray()
    while stream is not None and (piece := await stream.read(_PIECE_BYTES)):
        read += piece
        if len(read) > MAX_OUTPUT_BYTES:
            raise SettingsError(f"it writes more than {MAX_OUTPUT_BYTES} bytes")
    return bytes(read)


async def _end(process: asyncio.subprocess.Process, *, with_children: bool) -> None:
    """Kill a plug-in and its child processes, which may hold its output open, and wait for the end."""
    with suppress(ProcessLookupError, PermissionError):
        if with_children:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with suppress(TimeoutError):
        async with asyncio.timeout(_REAP_SECONDS):
            await process.communicate()
