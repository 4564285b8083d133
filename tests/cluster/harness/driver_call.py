"""Calls the driver's NodePrepareResources as a kubelet would.

A kubelet calls it once for each claim and needs the API server for that; a test can call it again and without one.
"""

from typing import Final

from harness.manifests import Object
from harness.node import Node

# runs in the agent's container, which has gRPC, the message types and the driver's socket
_SCRIPT: Final = """
import sys
import grpc
from dracpu_agent.kubelet.proto import kubelet_dra_pb2 as dra

namespace, name, uid = sys.argv[1:]
with grpc.insecure_channel("unix:///var/lib/kubelet/plugins/dra.cpu/dra.sock") as channel:
    prepare = channel.unary_unary(
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        dra.NodePrepareResourcesRequest.SerializeToString,
        dra.NodePrepareResourcesResponse.FromString,
    )
    claim = dra.Claim(namespace=namespace, name=name, uid=uid)
    answer = prepare(dra.NodePrepareResourcesRequest(claims=[claim]), timeout=45, wait_for_ready=True)
if answer.claims[uid].error:
    sys.exit(answer.claims[uid].error)
print(*(identifier for device in answer.claims[uid].devices for identifier in device.cdi_device_ids))
"""


def prepare(node: Node, claim: Object) -> list[str]:
    """Returns the CDI devices in the agent's answer for a claim; an error of the agent is raised with its message."""
    metadata = claim["metadata"]
    script = ("/opt/dracpu/bin/python3", "-c", _SCRIPT)
    names = (metadata["namespace"], metadata["name"], metadata["uid"])
    printed = node.execute(node.running_container("agent"), *script, *names)
    return printed.split()
