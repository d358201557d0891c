"""Reads user data as an instance's first boot does.

Scripts run one after the other, then the kubelet starts. Written against the documentation of ACK's
attach script and cloud-init, and independent of the provider's writer: a mistake in the writer is a
node that does not come up here.
"""

from __future__ import annotations

import binascii
import json
import shlex
from base64 import b64decode
from dataclasses import dataclass, field
from email import message_from_string
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.provider.kit.simulated.kubelets import BootError, NodeTaint, read_taints

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from email.message import Message

__all__ = ["KubeletSettings", "read_user_data"]

_ATTACH: Final = "attach_node.sh"
_SHELL: Final = "text/x-shellscript"
_JOINS: Final = ("kubeadm join", "k3s agent", "k3s.io", "kubelet ")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """With what a kubelet is started."""

    token: str = ""
    """Bootstrap token; empty when the instance joins by itself, without ACK."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[NodeTaint, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    """The fields of the kubelet's configuration, in camelCase."""
    runtime: str = "containerd"
    runtime_version: str = ""
    format_disk: bool = False
    """Whether the last data disk is the kubelet's."""
    ran_before: tuple[str, ...] = ()
    """The scripts that ran before the one that joins."""
    ran_after: tuple[str, ...] = ()
    """The scripts that ran after the one that joins."""

    @property
    def max_pods(self) -> int | None:
        """`maxPods`; None when nobody says."""
        configured = self.config.get("maxPods")
        return configured if isinstance(configured, int) else None


@lru_cache(maxsize=256)  # asked at every look at an instance; nobody changes the answer
def read_user_data(user_data: bytes) -> KubeletSettings:
    """Return with what the kubelet of an instance is started.

    Raises:
        BootError: none is.
    """
    try:
        text = user_data.decode()
    except UnicodeDecodeError as error:
        raise BootError(f"the user data is no text: {error}") from None
    scripts = list(_scripts(text))
    for number, script in enumerate(scripts):
        settings = _attached(script) or _joined(script)
        if settings is not None:
            return _with_scripts(settings, scripts[:number], scripts[number + 1 :])
    raise BootError("the user data does not join the instance to a cluster")


def _with_scripts(
    settings: KubeletSettings, before: Sequence[str], after: Sequence[str]
) -> KubeletSettings:
    return KubeletSettings(
        token=settings.token,
        labels=settings.labels,
        taints=settings.taints,
        config=settings.config,
        runtime=settings.runtime,
        runtime_version=settings.runtime_version,
        format_disk=settings.format_disk,
        ran_before=tuple(before),
        ran_after=tuple(after),
    )


def _scripts(text: str) -> Iterator[str]:
    """Return the scripts that run at boot, in order."""
    if text.startswith(("MIME-Version:", "Content-Type:")):
        message = message_from_string(text)
        if not message.is_multipart():
            raise BootError("the user data says that it is MIME, and is not multipart")
        for part in cast("list[Message[str, str]]", message.get_payload()):
            if part.get_content_type() == _SHELL:
                yield _script(str(part.get_payload()))
        return
    yield _script(text)


def _script(text: str) -> str:
    if not text.lstrip("\n").startswith("#!"):
        raise BootError(f"a script does not begin with #!: {text[:40]!r}")
    return text


def _attached(script: str) -> KubeletSettings | None:
    """Return what ACK's attach script is called with; None when the script does not call it."""
    line = next((each for each in script.split("\n") if _ATTACH in each), None)
    if line is None:
        return None
    if "\r" in line:
        raise BootError("the attach script has a carriage return in it")
    options = _options(line.partition(" -- ")[2])
    try:
        written = b64decode(options.get("node-config", "e30="), validate=True)
        config = cast("Mapping[str, Mapping[str, object]]", json.loads(written))
    except (binascii.Error, ValueError) as error:
        raise BootError(f"--node-config is not base64 of JSON: {error}") from None
    return KubeletSettings(
        token=options.get("openapi-token", ""),
        labels=_labels(options.get("labels", "")),
        taints=read_taints(options.get("taints", "")),
        config=config.get("kubelet_config", {}),
        runtime=options.get("runtime", ""),
        runtime_version=options.get("runtime-version", ""),
        format_disk=options.get("auto-fdisk") == "true",
    )


def _joined(script: str) -> KubeletSettings | None:
    """Return what an instance joins with that does so without ACK, by kubeadm or k3s."""
    lines = [
        each.strip()
        for each in script.replace("\\\n", " ").splitlines()
        if any(word in each for word in _JOINS) or "KUBELET_EXTRA_ARGS" in each
    ]
    if not lines:
        return None
    options = _options(" ".join(lines).replace('"', " ").replace("'", " "))
    labels = options.get("node-labels") or options.get("node-label", "")
    taints = options.get("register-with-taints") or options.get("node-taint", "")
    pods = options.get("max-pods", "")
    return KubeletSettings(
        labels=_labels(labels),
        taints=read_taints(taints),
        config={"maxPods": int(pods)} if pods.isdigit() else {},
    )


def _options(text: str) -> Mapping[str, str]:
    """Return the values of `--name value` and `--name=value`, as a shell takes them apart."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BootError(f"the shell cannot read the arguments: {error}") from None
    options: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            options.setdefault(name, [])
            if equals:
                options[name].append(value)
                name = ""
        elif name:
            options[name].append(word)
            name = ""
    return {name: ",".join(values) for name, values in options.items()}


def _labels(text: str) -> Mapping[str, str]:
    labels: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BootError(f"the kubelet cannot read the label {pair!r}")
        labels[key] = value
    return labels
