"""Which pods have which devices, CPUs and memory, as a kubelet tells exporters: ``v1.PodResourcesLister`` on a socket.

Always true: pods that have not ended, with their containers and those init containers that keep running; each container that
uses a claim shows all devices of the claim. A client may ask 100 times a second, 10 times at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from dray.api.core import Container, Pod
from dray.api.wire import WireError, decode, encode
from dray.nodes import containers
from dray.nodes.kubelet import Kubelets
from dray.nodes.preparing import Entry
from dray.numa import podresources as m

SOCKET: Final = "pod-resources/kubelet.sock"
PER_SECOND: Final = 100.0
AT_ONCE: Final = 10.0
_COUNTED: Final = {"List": "list", "Get": "get", "GetAllocatableResources": "get_allocatable"}


class PodResources:
    """What one node tells."""

    def __init__(self, node: str, kubelets: Kubelets) -> None:
        self._node, self._kubelets = node, kubelets

    def list(self, request: m.ListPodResourcesRequest) -> m.ListPodResourcesResponse:
        return m.ListPodResourcesResponse(tuple(self._pod(pod) for pod in self._kubelets.pods(self._node)))

    def get(self, request: m.GetPodResourcesRequest) -> m.GetPodResourcesResponse:
        for pod in self._kubelets.pods(self._node):
            if (pod.metadata.name, pod.metadata.namespace) == (request.pod_name, request.pod_namespace):
                return m.GetPodResourcesResponse(self._pod(pod))
        raise LookupError(f"pod {request.pod_name} in namespace {request.pod_namespace} not found")

    def allocatable(self, request: m.AllocatableResourcesRequest) -> m.AllocatableResourcesResponse:
        admission = self._kubelets.admission
        return admission.allocatable(self._node) if admission is not None else m.AllocatableResourcesResponse()

    def counted(self, method: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function, with its calls counted as a kubelet does."""
        name, count = _COUNTED[method], self._kubelets.meter.count

        def answer(request: Any) -> Any:
            count("kubelet_pod_resources_endpoint_requests_total", ("v1",))
            count(f"kubelet_pod_resources_endpoint_requests_{name}", ("v1",))
            try:
                return function(request)
            except LookupError:
                count(f"kubelet_pod_resources_endpoint_errors_{name}", ("v1",))
                raise

        return answer

    def _pod(self, pod: Pod) -> m.PodResources:
        admission, entries = self._kubelets.admission, self._kubelets.entries(pod)
        held = admission.exclusive(self._node, pod.uid) if admission is not None else {}
        told = tuple(_container(pod, each, entries, held.get(each.name)) for each in _lasting(pod))
        return m.PodResources(pod.metadata.name, pod.metadata.namespace, told)


def _lasting(pod: Pod) -> Iterator[Container]:
    """The containers that run as long as the pod does."""
    yield from (each for each in pod.spec.init_containers if each.restart_policy == "Always")
    yield from pod.spec.containers


def _container(
    pod: Pod, container: Container, entries: dict[str, Entry], held: m.ContainerResources | None
) -> m.ContainerResources:
    claims = [entries[name] for name in containers.uses(pod, container) if name in entries]
    dynamic = tuple(m.DynamicResource(each.claim.name, each.claim.namespace, _claimed(each)) for each in claims)
    return replace(held or m.ContainerResources(container.name), dynamic_resources=dynamic)


def _claimed(entry: Entry) -> tuple[m.ClaimResource, ...]:
    """Each device with its own CDI ids; upstream repeats those of the devices before it."""
    return tuple(
        m.ClaimResource(tuple(map(m.CDIDevice, device.cdi_ids)), driver, device.pool, device.device, device.share)
        for driver, state in entry.drivers.items()
        for device in state.devices
    )


# --------------------------------------------------------------------------------------------------------- the socket


async def serve(root: Path, resources: PodResources, clock: Callable[[], float] = time.monotonic) -> grpc.aio.Server:
    """Serve on the node's socket until the server is stopped."""
    path = root / SOCKET
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # one of an earlier run would stand in the way
    server = grpc.aio.server()
    limit = _Limit(clock)
    methods: dict[str, tuple[Callable[[Any], Any], type[Any]]] = {
        "List": (resources.list, m.ListPodResourcesRequest),
        "Get": (resources.get, m.GetPodResourcesRequest),
        "GetAllocatableResources": (resources.allocatable, m.AllocatableResourcesRequest),
    }
    handlers = {name: _method(resources.counted(name, function), kind, limit) for name, (function, kind) in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(m.SERVICE, handlers),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    return server


def _method(function: Callable[[Any], Any], kind: type[Any], limit: _Limit) -> grpc.RpcMethodHandler[Any, Any]:
    async def answer(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        if not limit.allows():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        try:
            return encode(function(decode(kind, raw)))
        except LookupError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error.args[0]))
        except WireError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise AssertionError("abort raises")

    return grpc.unary_unary_rpc_method_handler(answer)


class _Limit:
    """Tokens that come back with time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens, self._at = AT_ONCE, clock()

    def allows(self) -> bool:
        now = self._clock()
        self._tokens = min(AT_ONCE, self._tokens + (now - self._at) * PER_SECOND)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
