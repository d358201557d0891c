"""Kubeconfigs for tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["write_kubeconfig"]


def write_kubeconfig(
    path: Path,
    server: str,
    *,
    user: str = "test",
    certificate_authority: Path | None = None,
    credentials: Mapping[str, str] | None = None,
) -> Path:
    """Write a kubeconfig with one cluster, one user and one context."""
    cluster = {"server": server}
    if certificate_authority is not None:
        cluster["certificate-authority"] = str(certificate_authority)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": dict(credentials or {})}],
    }
    path.write_text(json.dumps(config, indent=2))
    return path
