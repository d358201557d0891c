"""Reads the token that kubelets of new nodes register with, as it is now.

AKS replaces bootstrap tokens. Kubernetes keeps the files of a mounted Secret up to date, so the token of a
file is read for each launch, and a new one needs no restart.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, final

from karpenter_core.errors import BadInputError, NodeClassNotReadyError

__all__ = ["BootstrapTokenReader", "read_token"]

_TOKEN: Final = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")
"""The form of bootstrap tokens (Kubernetes, authenticating with bootstrap tokens)."""
_PARTS: Final = ("token-id", "token-secret")
"""Keys of a Secret of the type `bootstrap.kubernetes.io/token`."""


def read_token(path: str) -> str:
    """Return the token of a file, or of a folder into which the Secret of a bootstrap token is mounted.

    Raises:
        BadInputError: there is none, or it has another form; the text of the file is not shown.
    """
    place = Path(path)
    files = [place / part for part in _PARTS] if place.is_dir() else [place]
    try:
        token = ".".join(each.read_text(encoding="utf-8").strip() for each in files)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadInputError(
            f'"{path}" must be a file with a bootstrap token, or a folder with the files '
            f"{' and '.join(_PARTS)}: {reason}"
        ) from error
    if not _TOKEN.fullmatch(token):
        raise BadInputError(
            f'the token of "{path}" must be of the form abcdef.0123456789abcdef, and has '
            f"{len(token)} characters"
        )
    return token


@final
class BootstrapTokenReader:
    """Returns the token of the settings; callable from any thread."""

    def __init__(self, *, token: str, path: str) -> None:
        """`path` is that of `read_token`; empty if `token` is fixed."""
        self._token: Final = token
        self._path: Final = path

    def current(self) -> str:
        """Return the token as it is now.

        Raises:
            NodeClassNotReadyError: it cannot be read, and a node without it would not join.
        """
        if not self._path:
            return self._token
        try:
            return read_token(self._path)
        except BadInputError as error:
            raise NodeClassNotReadyError(f"--kubelet-bootstrap-token-file: {error}") from error
