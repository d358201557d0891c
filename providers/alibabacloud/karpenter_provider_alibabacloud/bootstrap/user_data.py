"""Builds user data from ACK's script, node settings and the user's text.

Pure functions of values. The same inputs give the same bytes: launches are grouped by equal user
data.
"""

from __future__ import annotations

import base64
import json
import shlex
from dataclasses import dataclass
from email.message import Message
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CAPACITY_TYPE, UNREGISTERED_TAINT
from karpenter_core.api.nodeclaim import TaintSpec
from karpenter_core.errors import BadInputError
from karpenter_core.provider.kit.node_registration import is_settable_by_kubelet
from karpenter_core.provider.kit.user_data import (
    SHELL_SCRIPT,
    UserDataPart,
    mime_archive,
    user_data_parts,
)
from karpenter_provider_alibabacloud.labels import ACK_CLUSTER_LABEL, ACK_NODE_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim

__all__ = [
    "LARGEST_BYTES",
    "BootstrapInput",
    "ack_user_data",
    "custom_user_data",
    "node_config",
    "node_labels",
    "node_taints",
]

LARGEST_BYTES: Final = 32 * 1024
"""Limit of ECS, before the encoding in base64."""

_UNREGISTERED: Final = TaintSpec(key=UNREGISTERED_TAINT, effect="NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapInput:
    """The input of user data: everything that makes an instance the planned node."""

    node_claim: NodeClaim
    capacity_type: str
    """As chosen at launch."""
    kubelet: Mapping[str, object]
    """Settings of the user, under the kubelet's own names."""
    max_pods: int | None = None
    """The kubelet's limit of pods for the instance type; None to leave it to ACK."""
    user_data: str = ""
    """`spec.userData`, as the user wrote it."""


def node_labels(labels: Mapping[str, str], *, capacity_type: str) -> dict[str, str]:
    """Return the labels of a claim that its kubelet sets on the node, by key.

    What a kubelet refuses to set on its own node, and would not start with, is left out: the core
    puts it there once the node has registered.
    """
    all_labels = {**labels, CAPACITY_TYPE: capacity_type}
    return {key: all_labels[key] for key in sorted(all_labels) if is_settable_by_kubelet(key)}


def node_taints(claim: NodeClaim) -> tuple[TaintSpec, ...]:
    """Return the taints a node registers with: the claim's, and the one of young nodes at last."""
    young = (_UNREGISTERED.key, _UNREGISTERED.effect)
    taints = (*claim.spec.taints, *claim.spec.startup_taints)
    return (*(t for t in taints if (t.key, t.effect) != young), _UNREGISTERED)


def node_config(kubelet: Mapping[str, object], *, max_pods: int | None) -> str:
    """Return the kubelet's configuration for ACK's script, as the base64 of JSON.

    Pods per core are in `max_pods` already: ACK's script has no word for them.
    """
    fields = {name: value for name, value in kubelet.items() if name != "podsPerCore"}
    if max_pods is not None:
        fields["maxPods"] = max_pods
    config = {"kubelet_config": {name: fields[name] for name in sorted(fields)}}
    return _base64(json.dumps(config, separators=(",", ":")))


def ack_user_data(script: str, bootstrap: BootstrapInput, *, cluster_id: str) -> str:
    """Return the user data of a node of an ACK cluster, in base64.

    Parts of the user's archive that say `stage=pre` in their content type run before ACK's script,
    the others after it.

    Raises:
        BadInputError: the user's text is no archive although it begins like one, or all together is
            too large for ECS.
    """
    ours = UserDataPart(content_type=SHELL_SCRIPT, content=_command(script, bootstrap, cluster_id))
    parts = (ours, *user_data_parts(bootstrap.user_data))
    ordered = sorted(parts, key=lambda part: not _is_early(part))
    return _limited(mime_archive(ordered))


def custom_user_data(bootstrap: BootstrapInput) -> str:
    """Return the user data of a node of another cluster, in base64: the user's text.

    `{{labels}}`, `{{taints}}`, `{{maxPods}}` and `{{nodeClaim}}` in it are replaced.

    Raises:
        BadInputError: it is too large for ECS.
    """
    text = bootstrap.user_data
    claim = bootstrap.node_claim
    values = {
        "labels": _label_text(
            node_labels(claim.metadata.labels, capacity_type=bootstrap.capacity_type)
        ),
        "taints": _taint_text(node_taints(claim)),
        "maxPods": "" if bootstrap.max_pods is None else str(bootstrap.max_pods),
        "nodeClaim": claim.name,
    }
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return _limited(text)


def _command(script: str, bootstrap: BootstrapInput, cluster_id: str) -> str:
    claim = bootstrap.node_claim
    acks = {ACK_NODE_LABEL: "true", ACK_CLUSTER_LABEL: cluster_id}
    others = node_labels(claim.metadata.labels, capacity_type=bootstrap.capacity_type)
    labels = acks | {key: value for key, value in others.items() if key not in acks}
    config = node_config(bootstrap.kubelet, max_pods=bootstrap.max_pods)
    return (
        f"#!/bin/bash\n\n{script}"
        f" --labels {shlex.quote(_label_text(labels))}"
        f" --node-config {config}"
        f" --taints {shlex.quote(_taint_text(node_taints(claim)))}\n\n"
    )


def _label_text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _taint_text(taints: Iterable[TaintSpec]) -> str:
    return ",".join(
        f"{taint.key}={taint.value}:{taint.effect}"
        if taint.value
        else f"{taint.key}:{taint.effect}"
        for taint in taints
    )


def _is_early(part: UserDataPart) -> bool:
    header = Message()
    header["Content-Type"] = part.content_type
    is_script = header.get_content_type() == "text/x-shellscript"
    return is_script and header.get_param("stage") == "pre"


def _limited(text: str) -> str:
    size = len(text.encode())
    if size > LARGEST_BYTES:
        raise BadInputError(
            f"spec.userData: {size:,} bytes with the script or the values that join the node to the "
            f"cluster, and ECS takes {LARGEST_BYTES:,} at most"
        )
    return _base64(text)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
