"""Runs scenarios in virtual time, inside the test's own process."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, assert_never, final

from karpenter_core.kube import resources
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.expectations import CloudAccount, Observation, unmet_expectations
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_kwok.dump import dump_file
from karpenter_provider_kwok.plugin import KwokProvider
from tests.support.runner import KINDS, NODE_CLAIMS, WITH_CONDITIONS, ScenarioFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from karpenter_core.kube.resources import ResourceKind
    from karpenter_core.testing.harness import RunningProcess
    from karpenter_core.testing.scenarios import Expectation, ObjectPatch, Scenario, ScenarioAction

__all__ = ["VirtualScenarioWorld", "play_virtually"]

POLL_SECONDS: Final = 0.5
API_SERVER_DOWN_SECONDS: Final = 1.0


@final
class VirtualScenarioWorld:
    """A scenario's cluster and controller on a harness.

    `account` returns the contents of the simulated cloud, `suffer` causes faults in it; the harness
    has been entered already.
    """

    def __init__(
        self,
        harness: ControllerHarness,
        account: Callable[[], CloudAccount],
        suffer: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        self._harness: Final = harness
        self._account: Final = account
        self._suffer: Final = suffer
        self._arguments: tuple[str, ...] = ()
        self._controller: RunningProcess | None = None
        self._claims_ever: Final[set[str]] = set()

    async def run(self, scenario: Scenario) -> None:
        """Play a scenario from beginning to end.

        Raises:
            ScenarioFailedError: an expectation was not met.
        """
        self._harness.cluster.apply(scenario.given.objects())
        self._arguments = tuple(f"--{flag}={value}" for flag, value in scenario.settings.items())
        self._start()
        for number, step in enumerate(scenario.steps, start=1):
            for action in step.when:
                await self._act(action)
            if step.then is not None:
                await self._expect(step.then, where=f"{scenario.name}, step {number}")

    def _start(self) -> None:
        self._controller = self._harness.start(*self._arguments)

    async def _act(self, action: ScenarioAction) -> None:
        cluster = self._harness.cluster
        self._change(action)
        if action.faults is not None:
            self._suffer(action.faults)
        if action.wait is not None:
            await cluster.clock.sleep(action.wait.total_seconds())
        match action.kill:
            case "controller" if self._controller is not None:
                await self._controller.kill()
            case None | "controller":
                pass
            case _:
                assert_never(action.kill)
        if action.start is not None:
            self._start()
        if action.restart is not None:
            await cluster.restart_server(down_seconds=API_SERVER_DOWN_SECONDS)

    def _change(self, action: ScenarioAction) -> None:
        """Do what an action does to objects."""
        cluster = self._harness.cluster
        if action.scale is not None:
            cluster.scale(resources.DEPLOYMENTS, action.scale.deployment, action.scale.replicas)
        if action.create is not None:
            cluster.apply(action.create)
        if action.deploy is not None:
            cluster.apply([action.deploy.manifest()])
        if action.delete is not None:
            self._delete(KINDS[action.delete.kind], action.delete.name)
        if action.patch is not None:
            self._patch(KINDS[action.patch.kind], action.patch)
        if action.node_condition is not None:
            nodes = cluster.list(resources.NODES)
            for name, body in action.node_condition.patches(nodes, cluster.clock.now()):
                cluster.server.registry.patch(resources.NODES, body, name, part="status")

    def _delete(self, kind: ResourceKind, name: str) -> None:
        for each in self._harness.cluster.list(kind):
            metadata = each["metadata"]
            if name in ("", metadata["name"]):
                namespace = metadata.get("namespace", "")
                self._harness.cluster.delete(kind, metadata["name"], namespace=namespace)

    def _patch(self, kind: ResourceKind, patch: ObjectPatch) -> None:
        for each in self._harness.cluster.list(kind):
            metadata = each["metadata"]
            if patch.name in ("", metadata["name"]):
                namespace = metadata.get("namespace", "")
                name = metadata["name"]
                self._harness.cluster.patch(kind, name, patch.body, namespace=namespace)

    async def _expect(self, expected: Expectation, *, where: str) -> None:
        clock = self._harness.cluster.clock
        deadline = clock.monotonic() + expected.within.total_seconds()
        while missing := self._missing(expected):
            if clock.monotonic() > deadline:
                raise _failure(f"{where}: not within {expected.within}", missing)
            await clock.sleep(POLL_SECONDS)
        held_until = clock.monotonic() + expected.hold.total_seconds()
        while clock.monotonic() < held_until:
            await clock.sleep(POLL_SECONDS)
            if missing := self._missing(expected):
                raise _failure(f"{where}: did not hold for {expected.hold}", missing)

    def _missing(self, expected: Expectation) -> tuple[str, ...]:
        cluster = self._harness.cluster
        claims = cluster.list(NODE_CLAIMS)
        self._claims_ever.update(str(claim["metadata"]["uid"]) for claim in claims)
        seen = Observation(
            pods=cluster.list(resources.PODS, namespace="default"),
            nodes=cluster.list(resources.NODES),
            node_claims=claims,
            claims_ever=len(self._claims_ever),
            events=cluster.list(resources.EVENTS),
            objects={
                (kind.kind, str(each["metadata"]["name"])): each
                for kind in WITH_CONDITIONS
                for each in cluster.list(kind)
            },
        )
        return unmet_expectations(expected, seen) or unmet_expectations(
            expected, replace(seen, cloud=self._account())
        )


def _failure(what: str, missing: Iterable[str]) -> ScenarioFailedError:
    return ScenarioFailedError("\n".join([what, *(f"  {each}" for each in missing)]))


def play_virtually(scenario: Scenario, folder: Path) -> None:
    """Play a scenario with kwok's cloud; `folder` is for its state.

    Raises:
        ScenarioFailedError: an expectation was not met.
    """

    async def play() -> None:
        faults = folder / "faults.json"
        option = f"--kwok-faults-file={faults}"
        async with ControllerHarness(
            lambda: {"kwok": KwokProvider()}, folder=folder, arguments=[option]
        ) as harness:

            def account() -> CloudAccount:
                state = folder / "kwok.sqlite3"
                if not state.exists():
                    return CloudAccount()
                cloud_dump = dump_file(str(state), now=harness.cluster.clock.now())
                return CloudAccount(
                    instances=cloud_dump["instances"], launches=cloud_dump["launches"]
                )

            def suffer(suffered: list[dict[str, Any]]) -> None:
                faults.write_text(json.dumps(suffered))

            await VirtualScenarioWorld(harness, account, suffer).run(scenario)

    run_virtual(play())
