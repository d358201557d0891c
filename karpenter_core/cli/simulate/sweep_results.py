"""Stores finished runs of a sweep, so that an interrupted sweep continues.

Each line is the JSON of one run and the digest of its whole input: manifests, workload, catalogue, options,
and the version of the program. A run whose input has changed is not found, and is simulated again.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final, cast

import msgspec

from karpenter_core import __version__
from karpenter_core.cli.simulate.batch import FinishedRun
from karpenter_core.cli.written_files import writes_to
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.simulate.scenario import SimulationScenario
    from karpenter_core.cli.simulate.workload import Workload

__all__ = ["InputDigests", "SweepResults", "result_line"]


def result_line(digest: str, run: FinishedRun) -> str:
    """Return the line of a finished run, with the digest of its input."""
    return json.dumps({"input": digest, "notes": run.notes, "run": run.document})


class InputDigests:
    """Computes digests of the inputs of runs, which share most of them."""

    def __init__(self) -> None:
        self._parts: Final = dict[int, tuple[object, str]]()
        """Digests of workloads, by identity; the objects are kept so that no other gets theirs."""
        self._files: Final = dict["Path", str]()

    def digest(self, scenario: SimulationScenario) -> str:
        """Return the digest of everything that the result of a run depends on."""
        return _digest(
            [
                __version__,
                [entry.manifest for entry in scenario.manifests],
                self._workload(scenario.workload),
                scenario.start.isoformat(),
                [scenario.duration, scenario.step, scenario.seed, scenario.node_startup],
                list(scenario.settings),
                self._file(scenario.instance_types_file),
                [
                    scenario.reclaims_per_hour,
                    scenario.stock_outs_per_hour,
                    scenario.stock_out_seconds,
                ],
            ]
        )

    def _workload(self, workload: Workload) -> str:
        found = self._parts.get(id(workload))
        if found is None:
            made = _digest(
                [
                    [entry.manifest for entry in workload.manifests],
                    [
                        [
                            each.namespace,
                            each.name,
                            [[one.at, one.replicas] for one in each.changes],
                        ]
                        for each in workload.deployments
                    ],
                    [
                        [each.at, each.namespace, each.name, each.pod, each.run_seconds]
                        for each in workload.arrivals
                    ],
                ]
            )
            found = self._parts[id(workload)] = (workload, made)
        return found[1]

    def _file(self, file: Path | None) -> str:
        if file is None:
            return ""
        if file not in self._files:
            self._files[file] = hashlib.sha256(file.read_bytes()).hexdigest()
        return self._files[file]


class SweepResults:
    """The file of a sweep."""

    def __init__(self, file: Path) -> None:
        """Read the runs that the file has; a last line that was not written to its end is dropped.

        Raises:
            BadInputError: the file cannot be read or written, or is of another kind.
        """
        self._file: Final = file
        self._runs: Final = dict[str, FinishedRun]()
        with writes_to(file):
            content = file.read_bytes() if file.exists() else b""
            whole = content[: content.rfind(b"\n") + 1]
            if len(whole) < len(content) and not whole and not content.startswith(b'{"input":'):
                raise BadInputError(f"{file}: is no file of results: it has no whole line")
            for number, line in enumerate(whole.splitlines(), start=1):
                self._read(line, f"{file}, line {number}")
            with file.open("r+b" if content else "wb") as opened:
                opened.truncate(len(whole))

    def find(self, digest: str) -> FinishedRun | None:
        """Return the run with this input."""
        return self._runs.get(digest)

    def add(self, digest: str, run: FinishedRun) -> None:
        """Append a run.

        Raises:
            BadInputError: the file cannot be written.
        """
        try:
            with self._file.open("ab") as opened:
                opened.write(result_line(digest, run).encode() + b"\n")
        except OSError as error:
            raise BadInputError(f"{self._file}: {error.strerror}") from error

    def _read(self, line: bytes, where: str) -> None:
        problem = BadInputError(f"{where}: is no result of a sweep")
        try:
            read: object = json.loads(line)
        except (ValueError, RecursionError):
            raise problem from None
        if not isinstance(read, dict):
            raise problem
        fields = cast("JsonObject", read)
        digest: object = fields.get("input")
        document: object = fields.get("run")
        notes: object = fields.get("notes")
        if not (isinstance(digest, str) and isinstance(document, dict) and isinstance(notes, list)):
            raise problem
        self._runs[digest] = FinishedRun(
            document=cast("JsonObject", document),
            notes=tuple(map(str, cast("list[object]", notes))),
        )


def _digest(content: object) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()
