"""Resets moto's state of an account."""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from karpenter_simulated_aws.account import Account

__all__ = ["fresh_backends"]

_NO_IMAGES: Final = "MOTO_EC2_LOAD_DEFAULT_AMIS"
_lock: Final = Lock()


def fresh_backends(account: Account, services: Collection[str]) -> None:
    """Forget what moto keeps for the account; its images, which are not used, are not loaded."""
    from moto.backends import get_backend

    with _lock:
        before = os.environ.get(_NO_IMAGES)
        os.environ[_NO_IMAGES] = "false"
        try:
            for service in services:
                backends = cast("dict[str, Mapping[str, object]]", get_backend(service))  # pyright: ignore[reportArgumentType, reportCallIssue] - overloads by literal names
                backends.pop(account.id, None)
                if service == "ec2":
                    _ = backends[account.id][account.region]
        finally:
            if before is None:
                del os.environ[_NO_IMAGES]
            else:
                os.environ[_NO_IMAGES] = before
