"""Runs `karpenter run` with kinds that go stale after seconds.

The times are in the variable CONTACT_TIMES: seconds for fresh, quiet and reply.
"""

from __future__ import annotations

import asyncio
import os
import sys

from karpenter_core.kube.contact import ContactTimes
from karpenter_core.operator.launcher import run_from_command_line


def main() -> int:
    """Run until stopped."""
    fresh, quiet, reply = map(float, os.environ["CONTACT_TIMES"].split(","))
    times = ContactTimes(fresh_seconds=fresh, quiet_seconds=quiet, reply_seconds=reply)
    return asyncio.run(run_from_command_line(sys.argv[1:], os.environ, contact=times))


if __name__ == "__main__":
    sys.exit(main())
