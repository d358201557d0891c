"""Installs Chromium and its driver by apt, unless they are there: `python -m tests.dashboard.install`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def main() -> str | None:
    """Return the problem if there is no browser afterwards."""
    if not _is_there():
        prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
        for arguments in (["update"], ["install", "-y", "chromium", "chromium-driver"]):
            subprocess.run([*prefix, "apt-get", "-q", *arguments], check=False)
    if not _is_there():
        return "neither chromium nor chromedriver could be installed by apt-get"
    return None


def _is_there() -> bool:
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


if __name__ == "__main__":
    sys.exit(main())
