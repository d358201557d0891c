"""Prints the digest of the image for one architecture, out of an index of images (OCI) on standard input.

docker buildx imagetools inspect IMAGE --raw | python3 images/platform_digest.py arm64
"""

from __future__ import annotations

import json
import sys


def main(arch: str) -> int:
    """Print it; attestations in the index have the platform "unknown"."""
    found = [
        each["digest"]
        for each in json.load(sys.stdin)["manifests"]
        if (each["platform"]["os"], each["platform"]["architecture"]) == ("linux", arch)
    ]
    if len(found) != 1:
        print(f"the index has {len(found)} images for linux/{arch}, not one", file=sys.stderr)
        return 1
    print(found[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
