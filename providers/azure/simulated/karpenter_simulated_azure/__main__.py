"""Runs the simulated Azure as a program of its own."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from signal import SIGTERM, default_int_handler, signal
from threading import Event

from karpenter_simulated_azure.cloud import SimulatedAzure
from karpenter_simulated_azure.throttling import AZURE_RATES
from karpenter_simulated_azure.world import AzureWorld


def main() -> None:
    """Serve until it is interrupted; write the variables that lead here, then an empty line."""
    parser = argparse.ArgumentParser(prog="karpenter_simulated_azure", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 for any that is free")
    parser.add_argument("--location", default="westus2")
    parser.add_argument("--zones", default="1,2,3", help="zones of the region; empty for none")
    parser.add_argument("--skus", type=Path, help="output of `az vm list-skus -o json`")
    parser.add_argument("--create-seconds", type=float, default=20, help="per virtual machine")
    parser.add_argument("--delete-seconds", type=float, default=15, help="per virtual machine")
    parser.add_argument("--throttle", action="store_true", help="limit calls as Azure does")
    options = parser.parse_args()
    world = AzureWorld(
        location=options.location, zones=tuple(filter(None, options.zones.split(",")))
    )
    skus = json.loads(options.skus.read_bytes()) if options.skus else None
    signal(SIGTERM, default_int_handler)  # so that the files of certificates are removed
    with (
        suppress(KeyboardInterrupt),
        SimulatedAzure(world=world, skus=skus, port=options.port) as cloud,
    ):
        cloud.behaviour.pending_seconds = options.create_seconds
        cloud.behaviour.terminating_seconds = options.delete_seconds
        if options.throttle:
            cloud.throttling.set(AZURE_RATES)
        for name, value in cloud.environment.items():
            sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
        sys.stdout.write("\n")
        sys.stdout.flush()
        Event().wait()


if __name__ == "__main__":
    main()
