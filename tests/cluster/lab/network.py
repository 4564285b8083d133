"""The lab's network: a namespace with a bridge, a tap device for each node, and the addresses in it."""

from pathlib import Path
from typing import Final

from lab.errors import LabError
from lab.host import Argument, run
from lab.paths import Paths
from lab.pki import HOST_ADDRESS, SERVICE_ADDRESS

BRIDGE: Final = "br0"
NAMESPACES: Final = Path("/run/netns")  # iproute2 has a file here for each network namespace


def network_command(paths: Paths, *command: Argument) -> list[str]:
    """Returns the command line that runs a command in the lab's network."""
    return ["ip", "netns", "exec", paths.namespace, *map(str, command)]


def node_address(number: int) -> str:
    """Returns the address of node vm<number>."""
    return f"192.168.77.1{number}"


def pod_range(number: int) -> str:
    """Returns the address range of the pods on node vm<number>."""
    return f"10.244.{number}.0/24"


def node_number(node: str) -> int:
    """Returns the number in a node's name: 1 for `vm1`."""
    number = node.removeprefix("vm")
    if not number.isdecimal():
        raise LabError(f"{node} is not the name of a node: the names are vm1, vm2, ...")
    return int(number)


def make_network(paths: Paths, nodes: int) -> None:
    """Creates the namespace and its devices; removes first what an earlier run may have left."""
    remove_network(paths)
    run("ip", "netns", "add", paths.namespace)
    lines = [
        "link set lo up",
        f"addr add {SERVICE_ADDRESS}/32 dev lo",
        f"link add {BRIDGE} type bridge",
        f"addr add {HOST_ADDRESS}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]
    for number in range(1, nodes + 1):
        lines.append(f"tuntap add tap{number} mode tap")
        lines.append(f"link set tap{number} master {BRIDGE} up")
        lines.append(f"route replace {pod_range(number)} via {node_address(number)}")
    for line in lines:
        run("ip", "-n", paths.namespace, *line.split())


def remove_network(paths: Paths) -> None:
    """Removes the namespace, if it exists, with all its devices."""
    if (NAMESPACES / paths.namespace).exists():
        run("ip", "netns", "del", paths.namespace)
