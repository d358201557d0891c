"""Runs the simulated cloud as a program of its own."""

from __future__ import annotations

import argparse
import sys
from threading import Event

from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud


def main() -> None:
    """Serve until somebody interrupts, after telling the variables that lead here."""
    parser = argparse.ArgumentParser(prog="simulated", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 for any that is free")
    parser.add_argument("--region", default="cn-hangzhou")
    options = parser.parse_args()
    with SimulatedAlibabaCloud(region=options.region, port=options.port) as cloud:
        for name, value in cloud.environment.items():
            sys.stdout.write(f"export {name}={value}\n")
        sys.stdout.flush()
        try:
            Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
