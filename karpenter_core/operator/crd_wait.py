"""Waits until the API server serves the kinds that this process works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import ApiError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.kube.resources import ResourceKind

__all__ = ["CrdWaiter"]

RETRY_SECONDS: Final = 2.0


@final
class CrdWaiter:
    """Polls until all kinds are served, and logs the missing ones meanwhile."""

    def __init__(
        self,
        apis: ClusterApis,
        kinds: Iterable[ResourceKind],
        *,
        device_kinds: Iterable[ResourceKind] = (),
        clock: Clock,
    ) -> None:
        """`device_kinds` are kinds of Kubernetes itself, which its older versions lack."""
        self._apis = apis
        self._device_kinds = tuple(device_kinds)
        self._kinds = tuple(kinds)
        self._clock = clock
        self._log: FilteringBoundLogger = structlog.get_logger("operator")
        self.problem: str | None = "not checked yet"
        """The reason why kinds are missing; None once all are present."""

    async def run(self) -> None:
        """Return once every kind is served."""
        while True:
            problem = await self._missing_kinds()
            if problem is None:
                break
            if problem != self.problem:
                self._log.warning(problem)
            self.problem = problem
            await self._clock.sleep(RETRY_SECONDS)
        if self.problem is not None:
            self._log.info("custom resources are served", kinds=len(self._kinds))
        self.problem = None

    async def _missing_kinds(self) -> str | None:
        missing: list[str] = []
        absent: list[str] = []
        for kind in (*self._kinds, *self._device_kinds):
            try:
                await self._apis.api_for(kind).list_page(kind, limit=1)
            except NotFoundError:
                name = f"{kind.plural}.{kind.group}"
                (absent if kind in self._device_kinds else missing).append(name)
            except ApiError as error:
                return f"waiting for the API server: {error}"
        if not missing:
            return _absence(absent)
        return (
            f"waiting for CustomResourceDefinitions that are not installed: {', '.join(missing)}; "
            "install them with: karpenter crds | kubectl apply --server-side -f -"
        )


def _absence(kinds: Sequence[str]) -> str | None:
    if not kinds:
        return None
    return (
        f"waiting for kinds that the API server does not serve: {', '.join(kinds)}; "
        "--ignore-dra-requests=false needs resource.k8s.io/v1 (Kubernetes 1.34)"
    )
