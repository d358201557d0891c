"""Installs a C compiler by apt, unless one is there: `python -m tests.support.wall_clock.install`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def main() -> str | None:
    """Return the problem if there is no compiler afterwards."""
    if shutil.which("cc") is None:
        prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
        for arguments in (
            ["update"],
            ["install", "-y", "--no-install-recommends", "gcc", "libc6-dev"],
        ):
            subprocess.run([*prefix, "apt-get", "-q", *arguments], check=False)
    return None if shutil.which("cc") else "no C compiler could be installed by apt-get"


if __name__ == "__main__":
    sys.exit(main())
