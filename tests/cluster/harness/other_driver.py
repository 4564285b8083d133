"""Another DRA driver: one device on each NUMA node, and a kubelet plugin that prepares every claim by doing nothing.

The plugin is a pod of the agent's image, because that has gRPC and the messages of the kubelet's calls.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from harness.manifests import Object, container, pod
from harness.release import IMAGES, TAG
from harness.waiting import eventually
from harness.workspace import Workspace

NAME: Final = "test.example.com"  # of the driver, its DeviceClass, its pod and its slice
_PLUGINS: Final = "/var/lib/kubelet/plugins"
_REGISTRY: Final = "/var/lib/kubelet/plugins_registry"
_SCRIPT: Final = """
import pathlib
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from dracpu_agent.kubelet.proto import kubelet_dra_pb2 as dra
from dracpu_agent.kubelet.proto import kubelet_registration_pb2 as registration

name, endpoint, registry = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # before there are threads; sigwait takes it at the end


def served(socket, service, **methods):
    pathlib.Path(socket).unlink(missing_ok=True)
    handlers = {
        method: grpc.unary_unary_rpc_method_handler(
            lambda request, _, answer=answer: answer(request), takes.FromString, gives.SerializeToString
        )
        for method, (answer, takes, gives) in methods.items()
    }
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def prepared(request):
    return dra.NodePrepareResourcesResponse(
        claims={claim.uid: dra.NodePrepareResourceResponse() for claim in request.claims}
    )


def unprepared(request):
    return dra.NodeUnprepareResourcesResponse(
        claims={claim.uid: dra.NodeUnprepareResourceResponse() for claim in request.claims}
    )


def notified(status):
    print("registered:", status.plugin_registered, status.error, flush=True)
    return registration.RegistrationStatusResponse()


info = registration.PluginInfo(type="DRAPlugin", name=name, endpoint=endpoint, supported_versions=["v1.DRAPlugin"])
plugin = served(
    endpoint,
    "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    NodePrepareResources=(prepared, dra.NodePrepareResourcesRequest, dra.NodePrepareResourcesResponse),
    NodeUnprepareResources=(unprepared, dra.NodeUnprepareResourcesRequest, dra.NodeUnprepareResourcesResponse),
)
registered = served(
    registry,
    "pluginregistration.Registration",
    GetInfo=(lambda _: info, registration.InfoRequest, registration.PluginInfo),
    NotifyRegistrationStatus=(notified, registration.RegistrationStatus, registration.RegistrationStatusResponse),
)
signal.sigwait({signal.SIGTERM})
pathlib.Path(registry).unlink()
"""


@contextmanager
def other_driver(space: Workspace) -> Iterator[None]:
    """Runs the driver on the workspace's node during the body, and deletes all pods of the namespace afterwards."""
    kubectl = space.kubectl
    try:
        kubectl.apply(_class(), _slice(space.node.name, numa_nodes=2))
        space.run(_plugin())
        eventually(lambda: _assert_registered(space))
        yield
    finally:
        names = [pod["metadata"]["name"] for pod in kubectl.list("pods", space.namespace)]
        for name in sorted(names, key=NAME.__eq__):  # the driver last: it has to unprepare the claims of the others
            space.delete_pods(name)
        kubectl.delete("deviceclass", NAME)
        kubectl.delete("resourceslice", NAME)


def device(request: str, selector: str = "") -> Object:
    """Builds a request for one of the driver's devices."""
    exactly: Object = {"deviceClassName": NAME}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": request, "exactly": exactly}


def _assert_registered(space: Workspace) -> None:
    assert space.node.first_line(space.namespace, NAME).startswith("registered: True")


def _class() -> Object:
    selectors = [{"cel": {"expression": f'device.driver == "{NAME}"'}}]
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": NAME}}
    return {**kind, "spec": {"selectors": selectors}}


def _slice(node: str, numa_nodes: int) -> Object:
    attribute = "resource.kubernetes.io/numaNode"
    devices = [{"name": f"nic-{numa}", "attributes": {attribute: {"int": numa}}} for numa in range(numa_nodes)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": NAME}}
    return {**kind, "spec": {"driver": NAME, "nodeName": node, "pool": pool, "devices": devices}}


def _plugin() -> Object:
    folder = f"{_PLUGINS}/{NAME}"
    volumes = {"plugin": (folder, "DirectoryOrCreate"), "registry": (_REGISTRY, "Directory")}
    main = container("main")
    main["image"] = f"{IMAGES['agent']}:{TAG}"
    sockets = (f"{folder}/dra.sock", f"{_REGISTRY}/{NAME}-reg.sock")
    main["command"] = ["/opt/dracpu/bin/python3", "-c", _SCRIPT, NAME, *sockets]
    main["securityContext"] = {"runAsUser": 0}
    main["volumeMounts"] = [{"name": name, "mountPath": path} for name, (path, _) in volumes.items()]
    made = pod(NAME, main)
    made["spec"]["terminationGracePeriodSeconds"] = 10
    made["spec"]["volumes"] = [
        {"name": name, "hostPath": {"path": path, "type": kind}} for name, (path, kind) in volumes.items()
    ]
    return made
