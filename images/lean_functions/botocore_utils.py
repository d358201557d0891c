"""Functions in the place of those of `botocore.utils`."""

from __future__ import annotations

import os
from urllib.request import getproxies

from botocore.utils import should_bypass_proxies

__all__ = ["get_environ_proxies"]


def get_environ_proxies(url: str) -> dict[str, str]:
    """Return the proxies of the environment; without any, Python's client of URLs is not loaded."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    return {} if should_bypass_proxies(url) else getproxies()
