"""Runs a real Kubernetes control plane on loopback, without containers.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok (which plays the kubelets)
run as children of the test, on free ports of 127.0.0.1, with certificates and data in a folder
that goes away with them. What is lost against a production cluster is durability alone: the
binaries, authentication, authorisation and admission are the real ones.

The binaries come from the folder named by `KUBEBUILDER_ASSETS`, or else from
`~/.cache/karpenter-core/controlplane/`, where a build once per version leaves them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final

from karpenter_core.testing.cluster import ClusterClient
from tests.support.certificates import CertificateAuthority, write_key_pair
from tests.support.kubeconfig import write_kubeconfig
from tests.support.processes import ChildProcess, ProcessFailedError, free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["Binaries", "BinariesMissingError", "ControlPlane", "find_binaries"]

READY_SECONDS: Final = 90.0
"""Enough for a machine with two busy cores; an idle one needs 6 to 14 s."""
ETCD_QUOTA_BYTES: Final = 8 * 1024**3
CLIENT_QPS: Final = 500
CLIENT_BURST: Final = 1000
"""The controllers' own defaults (20 and 50) would dominate every timing."""
KWOK_PARALLELISM: Final = 16
GARBAGE_PERCENT: Final = "400"
"""Go collects garbage when the heap has grown by so much: a quarter of the CPU time for 130 MB more."""
SERVICE_CIDR: Final = "10.96.0.0/16"
ADMINISTRATORS: Final = "system:masters"


class BinariesMissingError(Exception):
    """A binary of the control plane is neither given nor built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """Paths of the programs of one control plane."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kwok: Path
    kwok_stages: Path
    """The stages that make nodes Ready and pods Running."""


def find_binaries(minor: str, *, kwok: str = "") -> Binaries:
    """Find the newest built release of a Kubernetes minor, such as `1.36`.

    `kwok` is a minor too, such as `0.8`; without it the newest that was built is taken.

    Raises:
        BinariesMissingError: something is missing; the message names it and the searched paths.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = cache / "karpenter-core" / "controlplane"
    assets = [Path(path)] if (path := os.environ.get("KUBEBUILDER_ASSETS")) else []
    kubernetes = [*assets, _newest(root, f"kubernetes-v{minor}.")]
    # Binaries put there by others may be of any version.
    kwoks = [_newest(root, f"kwok-v{kwok}.")] if kwok else [*assets, _newest(root, "kwok-v")]
    build = f"tests/e2e/controlplane/build.py {minor}{f' --kwok {kwok}' if kwok else ''}"

    def find(name: str, folders: list[Path]) -> Path:
        for folder in folders:
            if (folder / name).is_file():
                return folder / name
        looked = ", ".join(str(folder) for folder in folders)
        raise BinariesMissingError(
            f"{name} for Kubernetes {minor} is in none of: {looked}; `{build}` builds it",
        )

    return Binaries(
        etcd=find("etcd", kubernetes),
        kube_apiserver=find("kube-apiserver", kubernetes),
        kube_controller_manager=find("kube-controller-manager", kubernetes),
        kube_scheduler=find("kube-scheduler", kubernetes),
        kwok=find("kwok", kwoks),
        kwok_stages=find("stages.yaml", kwoks),
    )


def _newest(root: Path, prefix: str) -> Path:
    """Return the folder of the highest version; when there is none, the place it would have."""

    def version(folder: Path) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", folder.name))

    return max(root.glob(f"{prefix}*"), key=version, default=root / f"{prefix}*")


@final
class ControlPlane:
    """A running control plane; an async context manager.

    `kubeconfig` is the administrator's. `write_kubeconfig` makes others, so that the API server's
    audit log, which records every request of users named in `audited_users`, can distinguish them.
    `cores` bounds the cores that each process uses at once; 0 stands for all.
    """

    __slots__ = (
        "_admission_plugins",
        "_audited_users",
        "_authority",
        "_binaries",
        "_cores",
        "_folder",
        "_owns_folder",
        "api_server",
        "controller_manager",
        "etcd",
        "kubeconfig",
        "kwok",
        "scheduler",
        "url",
    )

    def __init__(
        self,
        binaries: Binaries,
        *,
        folder: Path | None = None,
        audited_users: Sequence[str] = (),
        admission_plugins: Sequence[str] = (),
        cores: int = 0,
    ) -> None:
        """`admission_plugins` are those beside the API server's defaults."""
        self._binaries: Final = binaries
        self._cores: Final = cores
        self._owns_folder: Final = folder is None
        self._folder: Final = folder or Path(tempfile.mkdtemp(prefix="controlplane-"))
        self._audited_users: Final = tuple(audited_users)
        self._admission_plugins: Final = tuple(admission_plugins)
        self._authority: Final = CertificateAuthority(self._folder / "pki")
        api_port, etcd_port, peer_port, manager_port, scheduler_port = free_ports(5)
        self.url: Final = f"https://127.0.0.1:{api_port}"
        self.kubeconfig: Final = self.write_kubeconfig("admin")
        self.etcd: Final = self._etcd(etcd_port, peer_port)
        self.api_server: Final = self._api_server(api_port, f"http://127.0.0.1:{etcd_port}")
        self.controller_manager: Final = self._controller_manager(manager_port)
        self.scheduler: Final = self._scheduler(scheduler_port)
        self.kwok: Final = self._kwok()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything that does not run yet and wait until it is ready.

        Controllers learn of CRDs that come after them only every half minute: a caller that needs
        them at once starts the API server first and installs them.
        """
        if not self.api_server.is_running:
            await self.start_api_server()
        for process in (self.controller_manager, self.scheduler, self.kwok):
            await process.start()
        await self.controller_manager.ready(
            self._has_default_service_account, seconds=READY_SECONDS
        )

    async def stop(self) -> None:
        """End every process that was started, the last one first; remove the folder."""
        for process in (self.kwok, self.scheduler, self.controller_manager, self.api_server):
            # There is nothing to be kept: no process has to shut down in good order.
            await process.kill()
        await self.etcd.kill()
        if self._owns_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def start_api_server(self) -> None:
        """Start the API server (again), on a new etcd if none runs; wait until it is ready."""
        if not self.etcd.is_running:
            await self.etcd.start()
        await self.api_server.start()
        await self.api_server.ready(self._is_ready, seconds=READY_SECONDS)

    async def kill_api_server(self) -> None:
        """Kill the API server, as a crash would; etcd keeps acknowledged writes."""
        await self.api_server.kill()

    @property
    def audit_log(self) -> Path:
        """One JSON event a line for every request of the audited users."""
        return self._folder / "audit.jsonl"

    def write_kubeconfig(self, user: str, *, organization: str = ADMINISTRATORS) -> Path:
        """Issue a client certificate and write the kubeconfig that uses it."""
        certificate, key = self._authority.issue(
            f"client-{user.replace(':', '-')}",
            user,
            organizations=[organization],
        )
        return write_kubeconfig(
            self._folder / f"{user.replace(':', '-')}.kubeconfig",
            self.url,
            user=user,
            certificate_authority=self._authority.certificate_file,
            credentials={"client-certificate": str(certificate), "client-key": str(key)},
        )

    def write_token_kubeconfig(self, name: str, token: str) -> Path:
        """Write the kubeconfig of a client that has a token, as pods have."""
        return write_kubeconfig(
            self._folder / f"{name}.kubeconfig",
            self.url,
            user=name,
            certificate_authority=self._authority.certificate_file,
            credentials={"token": token},
        )

    def _child(self, name: str, arguments: Sequence[str | Path]) -> ChildProcess:
        environment = {**os.environ, "GOGC": GARBAGE_PERCENT}
        if self._cores:
            environment["GOMAXPROCS"] = str(self._cores)
        log = self._folder / f"{name}.log"
        return ChildProcess(name, arguments, log=log, environment=environment)

    def _etcd(self, client_port: int, peer_port: int) -> ChildProcess:
        client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
        return self._child(
            "etcd",
            [
                self._binaries.etcd,
                f"--data-dir={self._folder / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                f"--quota-backend-bytes={ETCD_QUOTA_BYTES}",
                "--auto-compaction-mode=periodic",
                "--auto-compaction-retention=5m",
                "--log-level=warn",
            ],
        )

    def _api_server(self, port: int, etcd: str) -> ChildProcess:
        certificate, key = self._authority.issue(
            "kube-apiserver",
            "kube-apiserver",
            hosts=["127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1"],
        )
        kubelet_certificate, kubelet_key = self._authority.issue(
            "kubelet-client",
            "kube-apiserver-kubelet-client",
            organizations=[ADMINISTRATORS],
        )
        proxy_certificate, proxy_key = self._authority.issue("front-proxy", "front-proxy-client")
        public_key, private_key = write_key_pair(self._folder / "pki", "service-accounts")
        authority = self._authority.certificate_file
        return self._child(
            "kube-apiserver",
            [
                self._binaries.kube_apiserver,
                f"--etcd-servers={etcd}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--tls-cert-file={certificate}",
                f"--tls-private-key-file={key}",
                f"--client-ca-file={authority}",
                "--authorization-mode=Node,RBAC",
                "--anonymous-auth=false",
                "--endpoint-reconciler-type=none",
                f"--service-cluster-ip-range={SERVICE_CIDR}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={public_key}",
                f"--service-account-signing-key-file={private_key}",
                f"--kubelet-client-certificate={kubelet_certificate}",
                f"--kubelet-client-key={kubelet_key}",
                "--kubelet-preferred-address-types=InternalIP",
                f"--requestheader-client-ca-file={authority}",
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-username-headers=X-Remote-User",
                f"--proxy-client-cert-file={proxy_certificate}",
                f"--proxy-client-key-file={proxy_key}",
                *(f"--enable-admission-plugins={name}" for name in self._admission_plugins),
                *self._audit_flags(),
            ],
        )

    def _audit_flags(self) -> list[str]:
        if not self._audited_users:
            return []
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [
                {"level": "Metadata", "users": list(self._audited_users)},
                {"level": "None"},
            ],
        }
        path = self._folder / "audit-policy.json"
        path.write_text(json.dumps(policy))
        return [
            f"--audit-policy-file={path}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=batch",
            "--audit-log-batch-max-size=100",
            "--audit-log-batch-max-wait=500ms",
            "--audit-log-batch-throttle-enable=false",
        ]

    def _controller_manager(self, port: int) -> ChildProcess:
        user = "system:kube-controller-manager"
        kubeconfig = self.write_kubeconfig(user, organization=user)
        certificate, key = self._authority.issue("kcm-serving", "kcm", hosts=["127.0.0.1"])
        return self._child(
            "kube-controller-manager",
            [
                self._binaries.kube_controller_manager,
                *_kubeconfig_flags(kubeconfig),
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--tls-cert-file={certificate}",
                f"--tls-private-key-file={key}",
                f"--root-ca-file={self._authority.certificate_file}",
                f"--service-account-private-key-file={self._folder / 'pki/service-accounts.key'}",
                "--use-service-account-credentials",
                "--leader-elect=false",
                f"--kube-api-qps={CLIENT_QPS}",
                f"--kube-api-burst={CLIENT_BURST}",
            ],
        )

    def _scheduler(self, port: int) -> ChildProcess:
        user = "system:kube-scheduler"
        kubeconfig = self.write_kubeconfig(user, organization=user)
        certificate, key = self._authority.issue("scheduler-serving", "s", hosts=["127.0.0.1"])
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(kubeconfig),
                "qps": CLIENT_QPS,
                "burst": CLIENT_BURST,
            },
        }
        path = self._folder / "scheduler.json"
        path.write_text(json.dumps(config))
        return self._child(
            "kube-scheduler",
            [
                self._binaries.kube_scheduler,
                f"--config={path}",
                *_kubeconfig_flags(kubeconfig)[1:],
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--tls-cert-file={certificate}",
                f"--tls-private-key-file={key}",
            ],
        )

    def _kwok(self) -> ChildProcess:
        config = {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokConfiguration",
            "options": {
                "manageAllNodes": True,
                "nodePlayStageParallelism": KWOK_PARALLELISM,
                "podPlayStageParallelism": KWOK_PARALLELISM,
                "nodeLeaseParallelism": KWOK_PARALLELISM,
                "nodeLeaseDurationSeconds": 40,
            },
        }
        path = self._folder / "kwok.yaml"
        path.write_text(f"{json.dumps(config)}\n---\n{self._binaries.kwok_stages.read_text()}")
        return self._child(
            "kwok",
            [
                self._binaries.kwok,
                f"--kubeconfig={self.write_kubeconfig('kwok')}",
                f"--config={path}",
            ],
        )

    async def _is_ready(self) -> bool:
        async with ClusterClient(self.kubeconfig) as client:
            return await client.answers("/readyz")

    async def _has_default_service_account(self) -> bool:
        """Return whether pods can be created in the default namespace yet."""
        if not (self.scheduler.is_running and self.kwok.is_running):
            process = self.kwok if self.scheduler.is_running else self.scheduler
            raise ProcessFailedError(f"{process.name} ended\n{process.log_tail()}")
        async with ClusterClient(self.kubeconfig) as client:
            return await client.answers("/api/v1/namespaces/default/serviceaccounts/default")


def _kubeconfig_flags(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]
