"""Simulates tinycloud for tests; the client calls it over HTTP.

It behaves like a cloud (one VM for each token; a VM exists until it is deleted)
and simulates failures on demand. Delete this module, and use the cloud's sandbox in `testing`, once the
real cloud has one.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final, final
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Generator

    from karpenter_provider_tinycloud.client import Json

__all__ = ["SimulatedTinyCloud"]

TOKEN: Final = "secret"  # noqa: S105
STOPPING_SECONDS: Final = 0.05
NOTICE_SECONDS: Final = 120.0


def _size(name: str, cpus: int, architecture: str, price: float) -> Json:
    return {
        "name": name,
        "cpus": cpus,
        "memory_mib": cpus * 4096,
        "architecture": architecture,
        "price": price,
        "spot_price": round(price * 0.35, 4),
        "zones": ["north", "south"],
        "sold_out_in": [],
    }


@final
class SimulatedTinyCloud:
    """Serves the API on 127.0.0.1; a context manager starts and stops it."""

    def __init__(self) -> None:
        self.sizes: Final = [
            _size("small", 2, "amd64", 0.08),
            _size("medium", 4, "amd64", 0.16),
            _size("large", 16, "amd64", 0.62),
            _size("medium-arm", 4, "arm64", 0.13),
        ]
        self.images: Final = {"debian": "debian-v7"}
        self.vms: Final[dict[str, Json]] = {}
        self.notices: Final[dict[str, Json]] = {}
        self.calls: Final[Counter[str]] = Counter()
        """Number of requests by operation, refused ones included."""
        self._used_tokens: Final[set[str]] = set()
        self._protected: Final[set[str]] = set()
        self._troubles: Final[set[str]] = set()
        self._trouble_over: Final = threading.Event()
        self._lock: Final = threading.RLock()
        self._serial = 0
        self._server: Final = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> SimulatedTinyCloud:
        """Start the server."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self._trouble_over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # -- called by tests -------------------------------------------------------------------------

    @contextmanager
    def trouble(self, name: str) -> Generator[None, None, None]:
        """Simulate a failure inside the block."""
        self._trouble_over.clear()
        self._troubles.add(name)
        try:
            yield
        finally:
            self._troubles.discard(name)
            self._trouble_over.set()

    @contextmanager
    def protect(self, vm_id: str) -> Generator[None, None, None]:
        """Refuse to delete a VM inside the block."""
        self._protected.add(vm_id)
        try:
            yield
        finally:
            self._protected.discard(vm_id)

    def make_foreign(self) -> str:
        """Create a VM of another cluster."""
        wish = {"cluster": "another", "claim": "web-1", "token": "foreign", "spot": False}
        return self._make({**wish, "size": "small", "zone": "north", "image": "debian-v7"})["id"]

    def announce(self, vm_id: str) -> None:
        """Announce the interruption of a VM."""
        with self._lock:
            notice_id = f"n-{len(self.notices) + 1}"
            self.notices[notice_id] = {
                "id": notice_id,
                "kind": "reclaim",
                "vm": vm_id,
                "cluster": self.vms[vm_id]["cluster"],
                "deadline": time.time() + NOTICE_SECONDS,
            }

    def sell_out(self, zone: str) -> None:
        """Report every size as sold out in a zone."""
        for size in self.sizes:
            size["sold_out_in"].append(zone)

    def boot(self, vm_id: str) -> Json:
        """Return the Node that the kubelet of a VM creates."""
        vm = self.vms[vm_id]
        user_data = json.loads(vm["user_data"])
        size = next(size for size in self.sizes if size["name"] == vm["size"])
        amounts = {
            "cpu": str(size["cpus"]),
            "memory": f"{size['memory_mib'] - size['memory_mib'] // 25}Mi",
            "pods": "110",
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": vm_id, "labels": user_data["labels"]},
            "spec": {"providerID": f"tinycloud://{vm_id}", "taints": user_data["taints"]},
            "status": {"capacity": amounts, "allocatable": amounts},
        }

    # -- requests --------------------------------------------------------------------------------

    def answer(self, method: str, path: str, token: str, body: Json) -> tuple[int, Json] | None:
        """Return status and body; None breaks the connection."""
        address = urlsplit(path)
        parts = address.path.strip("/").split("/")[1:]
        self.calls[f"{method} {parts[0]}"] += 1
        is_launch = (method, parts) == ("POST", ["vms"])
        if "silence" in self._troubles:
            self._trouble_over.wait()
            return None
        loses_reply = is_launch and bool({"lost-reply", "token-in-progress"} & self._troubles)
        refusal = self._refusal(body) if is_launch else None
        if "outage" in self._troubles:
            refusal = 503, {"code": "unavailable", "message": "try again later"}
        elif token != TOKEN:
            refusal = 403, {"code": "forbidden", "message": "the token does not permit this"}
        if refusal is not None:
            return refusal
        cluster = parse_qs(address.query).get("cluster", [""])[0]
        with self._lock:
            result = self._route(method, parts, cluster, body)
        if loses_reply and result[0] == 200:  # noqa: PLR2004
            self._troubles.discard("lost-reply")
            return None
        return result

    def _refusal(self, body: Json) -> tuple[int, Json] | None:
        """Return the error of a launch that is refused before it has an effect."""
        if "auth-failure" in self._troubles:
            return 403, {"code": "forbidden", "message": "the token does not permit this"}
        if "throttling" in self._troubles and "lost-reply" not in self._troubles:
            return 429, {"code": "throttled", "message": "too many requests"}
        if "token-in-progress" in self._troubles and body["token"] in self._used_tokens:
            return 409, {"code": "in-progress", "message": "the VM is still being created"}
        return None

    def _route(self, method: str, parts: list[str], cluster: str, body: Json) -> tuple[int, Json]:
        self._advance()
        match method, parts:
            case "GET", ["sizes"]:
                return 200, {"sizes": self.sizes}
            case "GET", ["images", name] if name in self.images:
                return 200, {"version": self.images[name]}
            case "POST", ["vms"]:
                return self._launch(body)
            case "GET", ["vms"]:
                return 200, self._list(cluster)
            case _, ["vms", vm_id] if vm_id in self.vms:
                return self._about_vm(method, self.vms[vm_id], body)
            case "GET", ["notices"]:
                ours = [n for n in self.notices.values() if n["cluster"] == cluster]
                return 200, {"notices": ours}
            case "DELETE", ["notices", notice_id] if notice_id in self.notices:
                return 200, self.notices.pop(notice_id)
            case _:
                return 404, {"code": "not-found", "message": "not found"}

    def _about_vm(self, method: str, vm: Json, body: Json) -> tuple[int, Json]:
        if method == "DELETE" and vm["id"] in self._protected:
            return 409, {"code": "protected", "message": f"{vm['id']} is protected"}
        if method == "DELETE" and vm["state"] != "stopping":
            vm.update(state="stopping", gone_at=time.monotonic() + STOPPING_SECONDS)
        if method == "PATCH":
            vm["tags"].update(body["tags"])
        return 200, vm

    def _advance(self) -> None:
        """Update the states of VMs to the current time."""
        for vm in [*self.vms.values()]:
            if vm["state"] == "booting" and "no-boot" not in self._troubles:
                vm["state"] = "running"
            if vm["state"] == "stopping" and vm["gone_at"] <= time.monotonic():
                del self.vms[vm["id"]]

    def _launch(self, wish: Json) -> tuple[int, Json]:
        for vm in self.vms.values():
            if vm["token"] == wish["token"]:
                return 200, vm
        if wish["token"] in self._used_tokens:
            return 409, {"code": "token-used", "message": "the VM of this token is gone"}
        if "stock-out" in self._troubles:
            return 409, {"code": "sold-out", "message": f"no {wish['size']} in {wish['zone']}"}
        if "quota" in self._troubles:
            return 409, {"code": "quota", "message": "the account may have no more VMs"}
        if wish["image"] not in self.images.values():
            return 422, {"code": "invalid", "message": f"there is no image {wish['image']}"}
        return 200, self._make(wish)

    def _make(self, wish: Json) -> Json:
        with self._lock:
            self._serial += 1
            vm: Json = {
                **wish,
                "id": f"m-{self._serial:08x}",
                "state": "booting",
                "created": time.time(),
                "tags": {},
            }
            self._used_tokens.add(wish["token"])
            self.vms[vm["id"]] = vm
            return vm

    def _list(self, cluster: str) -> Json:
        ours = [m for m in self.vms.values() if m["cluster"] == cluster]
        if "partial-listing" in self._troubles:
            return {
                "vms": [m for m in ours if m["zone"] != "north"],
                "unread_zones": ["north"],
            }
        return {"vms": ours, "unread_zones": []}


class _Server(ThreadingHTTPServer):
    """Accepts many connections; does not wait for open ones when it stops."""

    daemon_threads = True
    request_queue_size = 128


def _handler(cloud: SimulatedTinyCloud) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Reads a request and writes the answer of the cloud."""

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            body: Json = json.loads(self.rfile.read(length)) if length else {}
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            answer = cloud.answer(self.command, self.path, token, body)
            if answer is None:
                self.close_connection = True
                return
            status, document = answer
            text = json.dumps(document).encode()
            self.send_response(status)
            if status == 429:  # noqa: PLR2004
                self.send_header("Retry-After", "2")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    return Handler
