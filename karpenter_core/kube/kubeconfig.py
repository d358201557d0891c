"""Reads kubeconfigs as kubectl does: merges files, resolves paths.

The official client differs where it matters: of several files it takes the last current context, it
looks for a user's files beside those of the cluster, any text turns the check of certificates off,
and impersonation is ignored. It gets one context in which none of this makes a difference.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote, urlsplit

import yaml

from karpenter_core.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonMapping, JsonObject

__all__ = ["Kubeconfig", "kubeconfig_exists", "read_kubeconfig"]

_CLUSTER_FIELDS: Final[Mapping[str, type]] = {
    "server": str,
    "certificate-authority": str,
    "certificate-authority-data": str,
    "insecure-skip-tls-verify": bool,
    "tls-server-name": str,
    "proxy-url": str,
    "disable-compression": bool,
    "extensions": list,
}
_USER_FIELDS: Final[Mapping[str, type]] = {
    "client-certificate": str,
    "client-certificate-data": str,
    "client-key": str,
    "client-key-data": str,
    "token": str,
    "tokenFile": str,
    "username": str,
    "password": str,
    "as": str,
    "as-uid": str,
    "as-groups": list,
    "as-user-extra": dict,
    "exec": dict,
    "auth-provider": dict,
}
_CLUSTER_PATHS: Final = ("certificate-authority",)
_USER_PATHS: Final = ("client-certificate", "client-key", "tokenFile")
_TYPE_WORDS: Final = {str: "a text", bool: "true or false", list: "a list", dict: "an object"}
_SCHEMES: Final = frozenset({"http", "https"})
_EXEC_CONFIG: Final = "client.authentication.k8s.io/exec"
"""The name of the cluster's extension that is handed to a credential plug-in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeconfig:
    """One context: its cluster and user, with absolute paths."""

    context: str
    cluster: JsonObject
    user: JsonObject
    namespace: str
    """The namespace of objects that are named without one; empty: not set."""

    @property
    def document(self) -> JsonObject:
        """The context as a kubeconfig of its own."""
        name = self.context
        return {
            "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "clusters": [{"name": name, "cluster": self.cluster}],
            "users": [{"name": name, "user": self.user}],
        }

    @property
    def exec_settings(self) -> JsonObject | None:
        """The user's credential plug-in; None without one."""
        return cast("JsonObject | None", self.user.get("exec"))

    @property
    def impersonation(self) -> tuple[tuple[str, str], ...]:
        """The headers that let requests act as another user."""
        headers: list[tuple[str, str]] = []
        if name := self.user.get("as"):
            headers.append(("Impersonate-User", str(name)))
        if uid := self.user.get("as-uid"):
            headers.append(("Impersonate-Uid", str(uid)))
        groups = cast("list[object]", self.user.get("as-groups") or [])
        headers += (("Impersonate-Group", str(group)) for group in groups)
        extra = cast("dict[str, list[object]]", self.user.get("as-user-extra") or {})
        for key, values in sorted(extra.items()):
            header = f"Impersonate-Extra-{quote(key.lower(), safe='')}"
            headers += ((header, str(value)) for value in values)
        return tuple(headers)

    def cluster_info(self) -> JsonObject | None:
        """Return what a plug-in with `provideClusterInfo` learns of the cluster; None for others.

        Raises:
            OSError: the file of the cluster's authority cannot be read.
        """
        if not (self.exec_settings or {}).get("provideClusterInfo"):
            return None
        kept = (
            "server",
            "tls-server-name",
            "insecure-skip-tls-verify",
            "certificate-authority-data",
            "proxy-url",
            "disable-compression",
        )
        info: JsonObject = {name: self.cluster[name] for name in kept if name in self.cluster}
        if "certificate-authority-data" not in info and "certificate-authority" in self.cluster:
            content = Path(str(self.cluster["certificate-authority"])).read_bytes()
            info["certificate-authority-data"] = base64.b64encode(content).decode()
        for extension in cast("list[object]", self.cluster.get("extensions") or []):
            if isinstance(extension, dict):
                named = cast("JsonObject", extension)
                if named.get("name") == _EXEC_CONFIG:
                    info["config"] = named.get("extension")
        return info


def kubeconfig_exists(path: str) -> bool:
    """Tell whether there is a file of this path, in which `~` is a user's home folder.

    Raises:
        SettingsError: that cannot be told, as in a folder of another user.
    """
    try:
        Path(path).expanduser().stat()
    except (FileNotFoundError, NotADirectoryError, RuntimeError):  # RuntimeError: no home folder
        return False
    except OSError as error:
        raise SettingsError(f"kubeconfig {path}: {error.strerror or error}") from error
    return True


def read_kubeconfig(paths: str, context: str | None) -> Kubeconfig:
    """Read one context of a kubeconfig, or of several that are separated as in a search path.

    The first file with a name or a current context wins. Without `context`, the current one is read.

    Raises:
        SettingsError: no file exists, one of them cannot be read, or the context cannot be used.
    """
    files = [path for path in paths.split(os.pathsep) if path and kubeconfig_exists(path)]
    if not files:
        raise SettingsError(f"kubeconfig {paths}: no such file")
    entries: dict[str, dict[str, _Entry]] = {"contexts": {}, "clusters": {}, "users": {}}
    current = ""
    for path in files:
        document = _read_document(path)
        current = current or str(document.get("current-context") or "")
        for section, known in entries.items():
            for name, entry in _read_section(path, document, section).items():
                known.setdefault(name, entry)
    context_name = context or current
    if not context_name:
        raise SettingsError(f"kubeconfig {paths}: no current-context, and no context given")
    if context_name not in entries["contexts"]:
        names = ", ".join(sorted(entries["contexts"])) or "none"
        raise SettingsError(f'kubeconfig {paths}: no context "{context_name}"; there are: {names}')
    chosen = entries["contexts"][context_name]
    cluster = _referred(chosen, entries["clusters"], "cluster")
    user = _referred(chosen, entries["users"], "user")
    if cluster is None:
        raise chosen.error("cluster: missing")
    return Kubeconfig(
        context=context_name,
        cluster=_read_cluster(cluster),
        user=_read_user(user) if user else {},
        namespace=str(chosen.checked({"namespace": str}).get("namespace", "")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A named context, cluster or user, and its file."""

    path: str
    kind: str
    name: str
    fields: JsonObject

    def error(self, problem: str) -> SettingsError:
        """Return an error that names the file and the entry."""
        return SettingsError(f'kubeconfig {self.path}: {self.kind} "{self.name}": {problem}')

    def checked(self, types: Mapping[str, type]) -> JsonObject:
        """Return the fields that are set.

        Raises:
            SettingsError: a field has another type.
        """
        kept = {name: value for name, value in self.fields.items() if value not in (None, "")}
        for name, expected in types.items():
            if name in kept and type(kept[name]) is not expected:
                raise self.error(f"{name}: must be {_TYPE_WORDS[expected]}")
        return kept

    def resolved(self, path: object) -> str:
        """Return a path that is relative to the folder of the file."""
        folder = Path(self.path).expanduser().absolute().parent
        return os.path.normpath(folder / str(path))


def _read_document(path: str) -> JsonMapping:
    try:
        content: object = yaml.safe_load(Path(path).expanduser().read_text())
    except yaml.YAMLError as error:
        raise SettingsError(f"kubeconfig {path}: {_yaml_problem(error)}") from error
    except RecursionError as error:
        raise SettingsError(f"kubeconfig {path}: is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"kubeconfig {path}: is not UTF-8 text") from error
    except OSError as error:
        raise SettingsError(f"kubeconfig {path}: {error.strerror or error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"kubeconfig {path}: not a kubeconfig")
    return cast("JsonObject", content)


def _read_section(path: str, document: JsonMapping, section: str) -> dict[str, _Entry]:
    kind = section.removesuffix("s")
    listed: object = document.get(section) or []
    if not isinstance(listed, list):
        raise SettingsError(f"kubeconfig {path}: {section}: must be a list")
    found: dict[str, _Entry] = {}
    for index, item in enumerate(cast("list[object]", listed)):
        entry = cast("JsonObject", item) if isinstance(item, dict) else {}
        name, fields = entry.get("name"), entry.get(kind)
        if not isinstance(name, str):
            raise SettingsError(f"kubeconfig {path}: {section}[{index}]: must have a name")
        if not isinstance(fields, dict | None):
            raise SettingsError(f'kubeconfig {path}: {kind} "{name}": must be an object')
        content = cast("JsonObject", fields or {})
        found.setdefault(name, _Entry(path=path, kind=kind, name=name, fields=content))
    return found


def _referred(context: _Entry, entries: Mapping[str, _Entry], kind: str) -> _Entry | None:
    """Return the cluster or user that a context names; None if it names none."""
    name = context.checked({kind: str}).get(kind)
    if name is None:
        return None
    if name not in entries:
        raise context.error(f'{kind}: there is no {kind} "{name}"')
    return entries[str(name)]


def _read_cluster(entry: _Entry) -> JsonObject:
    cluster = entry.checked(_CLUSTER_FIELDS)
    server = str(cluster.get("server") or "")
    try:
        address = urlsplit(server)
        is_usable = address.scheme in _SCHEMES and bool(address.hostname)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise entry.error(f'server: must be a URL with https or http, not "{server}"')
    return cluster | {
        name: entry.resolved(cluster[name]) for name in _CLUSTER_PATHS & cluster.keys()
    }


def _read_user(entry: _Entry) -> JsonObject:
    user = entry.checked(_USER_FIELDS)
    user |= {name: entry.resolved(user[name]) for name in _USER_PATHS if name in user}
    if "tokenFile" in user:
        user.pop("token", None)
    if "as" not in user and not user.keys().isdisjoint({"as-uid", "as-groups", "as-user-extra"}):
        raise entry.error("as: missing; it is required with as-uid, as-groups and as-user-extra")
    extra = cast("dict[object, object]", user.get("as-user-extra") or {})
    for key, values in extra.items():
        if not isinstance(key, str) or not isinstance(values, list):
            raise entry.error("as-user-extra: must be an object of lists")
    if "exec" in user:
        user["exec"] = _read_exec(entry, cast("JsonObject", user["exec"]))
    return user


def _read_exec(entry: _Entry, settings: JsonObject) -> JsonObject:
    """Return the settings of a plug-in; only a command without a folder is looked for in PATH."""
    command = settings.get("command")
    if isinstance(command, str) and os.sep in command:
        settings = {**settings, "command": entry.resolved(command)}
    if not isinstance(settings.get("args"), list | None):
        raise entry.error("exec.args: must be a list")
    variables: object = settings.get("env") or []
    entries = cast("list[object]", variables) if isinstance(variables, list) else [variables]
    for each in entries:
        if not isinstance(each, dict) or "name" not in each:
            raise entry.error("exec.env: must be a list of objects with a name")
    return settings


def _yaml_problem(error: yaml.YAMLError) -> str:
    """Return on one line what is wrong with a text, and where."""
    mark: yaml.Mark | None = getattr(error, "problem_mark", None)
    line = "" if mark is None else f"line {mark.line + 1}: "
    problem: object = getattr(error, "problem", None) or error
    return f"{line}is not YAML: {' '.join(str(problem).split())}"
