"""A driver program in Python: serves its registration and DRA sockets as one would that runs beside a kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dray.api.wire import decode, encode
from dray.nodes import messages as m

NAME = "gpu.example.com"


class Plugin:
    """``async with Plugin(root)``: registered while it lasts. Answers as ``prepared`` and ``error`` say."""

    def __init__(self, root: Path, *, name: str = NAME, suffix: str = "", versions: tuple[str, ...] = ("v1.DRAPlugin",)) -> None:
        self.registration = root / "plugins_registry" / f"{name}{suffix}-reg.sock"
        self.endpoint = root / "plugins" / f"{name}{suffix}.sock"
        self.info = m.PluginInfo("DRAPlugin", name, str(self.endpoint), versions)
        self.status: m.RegistrationStatus | None = None
        self.calls: list[tuple[str, list[str]]] = []
        self.error = ""
        self.hold = asyncio.Event()
        self.hold.set()
        self.reports: asyncio.Queue[m.NodeWatchResourcesResponse | None] = asyncio.Queue()
        self._servers: list[grpc.aio.Server] = []

    async def __aenter__(self) -> Plugin:
        services = [path for name, path in (m.DRA_SERVICES | m.HEALTH_SERVICES).items() if name in self.info.supported_versions]
        dra = {service: self._methods(service) for service in services}
        registration = {m.REGISTRATION: {"GetInfo": self._info, "NotifyRegistrationStatus": self._notified}}
        await self._serve(self.endpoint, dra)
        await self._serve(self.registration, registration)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            await server.stop(0)
        self.registration.unlink(missing_ok=True)

    async def hang_up(self) -> None:
        """The endpoint goes, its registration stays."""
        await self._servers[0].stop(0)

    def _methods(self, service: str) -> dict[str, Any]:
        if "Health" in service:
            return {"NodeWatchResources": self._health}
        return {"NodePrepareResources": self._prepare, "NodeUnprepareResources": self._unprepare}

    async def _serve(self, path: Path, services: dict[str, dict[str, Any]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        server = grpc.aio.server()
        for service, methods in services.items():
            handlers = {name: _handler(method) for name, method in methods.items()}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.strip("/"), handlers),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        self._servers.append(server)

    async def _info(self, raw: bytes, context: Any) -> bytes:
        return encode(self.info)

    async def _notified(self, raw: bytes, context: Any) -> bytes:
        self.status = decode(m.RegistrationStatus, raw)
        return b""

    async def _prepare(self, raw: bytes, context: Any) -> bytes:
        claims = decode(m.NodeResourcesRequest, raw).claims
        await self.hold.wait()
        self.calls.append(("prepare", [claim.name for claim in claims]))
        device = m.Device(("gpu",), "pool", "gpu-0", ("example.com/gpu=0",))
        one = m.NodePrepareResourceResponse((), self.error) if self.error else m.NodePrepareResourceResponse((device,))
        return encode(m.NodePrepareResourcesResponse({claim.uid: one for claim in claims}))

    async def _unprepare(self, raw: bytes, context: Any) -> bytes:
        claims = decode(m.NodeResourcesRequest, raw).claims
        self.calls.append(("unprepare", [claim.name for claim in claims]))
        return encode(m.NodeUnprepareResourcesResponse({claim.uid: m.NodeUnprepareResourceResponse() for claim in claims}))

    async def _health(self, raw: bytes, context: Any) -> AsyncIterator[bytes]:
        while (report := await self.reports.get()) is not None:
            yield encode(report)


def _handler(method: Any) -> Any:
    if method.__name__ == "_health":
        return grpc.unary_stream_rpc_method_handler(method)
    return grpc.unary_unary_rpc_method_handler(method)
