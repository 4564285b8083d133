"""The lab's network: one namespace with a bridge, a tap device per node, and the addresses of host and service."""

from pathlib import Path
from typing import Final

from lab.host import Argument, run
from lab.paths import Paths
from lab.pki import HOST_ADDRESS, SERVICE_ADDRESS

BRIDGE: Final = "br0"
NAMESPACES: Final = Path("/run/netns")  # where iproute2 keeps their names


def inside(paths: Paths, *command: Argument) -> list[str]:
    """The command, run in the lab's network."""
    return ["ip", "netns", "exec", paths.namespace, *map(str, command)]


def node_address(number: int) -> str:
    """Where node vm<number> is."""
    return f"192.168.77.1{number}"


def pod_range(number: int) -> str:
    """The addresses of the pods of node vm<number>."""
    return f"10.244.{number}.0/24"


def node_number(node: str) -> int:
    """`vm1` -> 1."""
    return int(node.removeprefix("vm"))


def make_network(paths: Paths, nodes: int) -> None:
    """A fresh namespace; what an earlier run may have left is removed first."""
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
    """Removes the namespace, if there is one, and with it every device in it."""
    if (NAMESPACES / paths.namespace).exists():
        run("ip", "netns", "del", paths.namespace)
