"""`karpenter snapshot`: reads a cluster, and writes it to one private file.

The file serves offline commands and bug reports.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from karpenter_core.cli.cluster_options import takes_cluster
from karpenter_core.cli.cluster_source import ClusterSource, help_of
from karpenter_core.cli.written_files import writes_to
from karpenter_core.files import replace_file

if TYPE_CHECKING:
    from karpenter_core.cli.snapshot.collection import CollectedCluster

__all__ = ["register", "snapshot"]

_STDOUT: Final = Path("-")


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    summary = "Save a cluster to one file that every offline command reads."
    app.command("snapshot", help=help_of(snapshot), short_help=summary)(snapshot)


@takes_cluster
def snapshot(
    source: ClusterSource,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="File to write, compressed if its name ends with .gz; - is the standard output.",
        ),
    ] = Path("karpenter-snapshot.json.gz"),
    hash_names: Annotated[
        bool,
        typer.Option(
            "--hash-names", help="Replace names and label values by hashes with a random key."
        ),
    ] = False,
) -> None:
    """Save a cluster to one file that every offline command reads.

    The file holds the objects that the controller reads, the instance types, offerings and prices that
    the providers list now, and the settings that plans depend on. It holds no Secret, environment,
    argument, command, user data, managed field or token. Reads the current cluster (get and list
    only), or with --offline only the FILEs.

    Exit code: 0 if the file was written; 2 if files, settings or the cluster cannot be used.
    """
    from karpenter_core.cli.plan import print_notes
    from karpenter_core.cli.snapshot.collection import collect

    collected = asyncio.run(collect(source))
    print_notes(collected.header.notes)
    if hash_names:
        from karpenter_core.cli.snapshot.name_hashing import hash_names_of

        collected = hash_names_of(collected, key=os.urandom(32))
    body = _body(collected)
    if output == _STDOUT:
        sys.stdout.buffer.write(body)
        return
    packed = gzip.compress(body, mtime=0) if output.suffix == ".gz" else body
    _write(output, packed)
    print(f"{output}: {len(collected.items)} objects, {len(packed):,} bytes", file=sys.stderr)


def _body(collected: CollectedCluster) -> bytes:
    import msgspec

    from karpenter_core.cli.manifests import SNAPSHOT_KEY
    from karpenter_core.cli.snapshot_file.header import write_header

    document = {
        "apiVersion": "v1",
        "kind": "List",
        SNAPSHOT_KEY: write_header(collected.header),
        "items": collected.items,
    }
    return msgspec.json.encode(document)


def _write(path: Path, body: bytes) -> None:
    """Write the file, readable for its owner alone: names of a cluster are private.

    A file of the same name is replaced in whole or, where the disk is full, not at all.
    """
    with writes_to(path):
        if path.exists() and not path.is_file():  # a pipe or a device
            path.write_bytes(body)
            return
        replace_file(path.resolve(), body)
