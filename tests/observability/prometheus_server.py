"""Runs a real Prometheus on loopback that scrapes one controller, and asks its HTTP API."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Any, Final, Self, final

import aiohttp
import yaml

from tests.observability.prometheus.build import programs_folder
from tests.support.processes import ChildProcess, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

__all__ = ["PrometheusServer", "groupings", "promtool", "selector_text", "selectors"]

READY_SECONDS: Final = 30.0


@final
class PrometheusServer:
    """A Prometheus that scrapes `targets` every two seconds and evaluates `rule_files`."""

    def __init__(
        self, folder: Path, *, targets: Sequence[str], rule_files: Iterable[Path] = ()
    ) -> None:
        folder.mkdir()
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        configuration = folder / "prometheus.yaml"
        configuration.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "2s", "evaluation_interval": "5s"},
                    "rule_files": [str(path) for path in rule_files],
                    "scrape_configs": [
                        {
                            "job_name": "karpenter",
                            "static_configs": [
                                {"targets": list(targets), "labels": {"cluster": "test"}}
                            ],
                        }
                    ],
                }
            )
        )
        self._process = ChildProcess(
            "prometheus",
            [
                programs_folder() / "prometheus",
                f"--config.file={configuration}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            log=folder / "prometheus.log",
            environment={"GOMAXPROCS": "1"},
        )

    async def __aenter__(self) -> Self:
        await self._process.start()
        self._session = aiohttp.ClientSession()
        await self._process.ready(self._is_ready, seconds=READY_SECONDS)
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()
        await self._process.stop()

    async def parse(self, expression: str) -> dict[str, Any]:
        """Return the syntax tree of an expression."""
        return await self._get("parse_query", query=expression)

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression now."""
        return (await self._get("query", query=expression))["result"]

    async def query_all(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression at any time of the last five minutes."""
        now = time.time()
        times = {"start": str(now - 300), "end": str(now), "step": "2"}
        return (await self._get("query_range", query=expression, **times))["result"]

    async def series(self, selector: str) -> list[dict[str, str]]:
        """Return the label sets of all series that a selector has ever matched."""
        return await self._get("series", **{"match[]": selector})

    async def label_values(self, label: str, selector: str) -> list[str]:
        """Return the values that a label has in the series of a selector."""
        return await self._get(f"label/{label}/values", **{"match[]": selector})

    async def rules(self) -> list[dict[str, Any]]:
        """Return all alert rules with their health."""
        groups = (await self._get("rules"))["groups"]
        return [rule for group in groups for rule in group["rules"]]

    async def _is_ready(self) -> bool:
        try:
            async with self._session.get(f"{self._url}/-/ready") as answer:
                return answer.ok
        except aiohttp.ClientError:
            return False

    async def _get(self, path: str, **query: str) -> Any:
        async with self._session.get(f"{self._url}/api/v1/{path}", params=query) as answer:
            document = await answer.json()
        assert document["status"] == "success", (query, document)
        return document["data"]


def selectors(tree: Any) -> Iterator[tuple[str, dict[str, tuple[str, str]]]]:
    """Yield metric name and matchers (label: type and value) of each selector in a syntax tree."""
    if isinstance(tree, dict):
        if tree.get("type") in {"vectorSelector", "matrixSelector"}:
            yield (
                tree["name"],
                {
                    matcher["name"]: (matcher["type"], matcher["value"])
                    for matcher in tree["matchers"]
                    if matcher["name"] != "__name__"
                },
            )
        for value in tree.values():
            yield from selectors(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from selectors(value)


def selector_text(name: str, matchers: dict[str, tuple[str, str]]) -> str:
    """Write a selector without the matchers that match everything."""
    texts = [
        f'{label}{kind}"{value}"'
        for label, (kind, value) in sorted(matchers.items())
        if (kind, value) != ("=~", ".*")
    ]
    return f"{name}{{{','.join(texts)}}}" if texts else name


def groupings(tree: Any) -> Iterator[str]:
    """Yield the labels by which the aggregations and joins in a syntax tree group."""
    if isinstance(tree, dict):
        if tree.get("type") == "aggregation":
            yield from tree["grouping"]
        elif tree.get("type") == "binaryExpr" and tree.get("matching"):
            yield from tree["matching"]["labels"]
        for value in tree.values():
            yield from groupings(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from groupings(value)


def promtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run promtool and return what it printed; never raises."""
    return subprocess.run(
        [programs_folder() / "promtool", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
