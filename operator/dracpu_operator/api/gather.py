"""Lets the events of a busy watch arrive in groups.

Each event that arrives alone wakes the process, which costs five times as much as what is in it: with 15,000 kubelets
that report every five minutes, this would be most of what an idle operator needs of a processor.
"""

import asyncio
import contextlib
import socket
from typing import Final

import aiohttp

_ENOUGH: Final = 65_536  # bytes after which the process is woken nevertheless


async def gather(response: aiohttp.ClientResponse, seconds: float) -> None:
    """Waits while further events arrive. In this time the kernel reports them only when there are many; nothing is
    lost, and the end of the connection is noticed afterwards."""
    transport = None if response.connection is None else response.connection.transport
    connected = None if transport is None else transport.get_extra_info("socket")
    if connected is None:  # the watch has ended
        return
    _wake_from(connected, _ENOUGH)
    try:
        await asyncio.sleep(seconds)
    finally:
        _wake_from(connected, 1)  # also because another request may use the connection after this one


def _wake_from(connected: socket.socket, count: int) -> None:
    with contextlib.suppress(OSError):  # it was closed meanwhile, or the system has no such option
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
