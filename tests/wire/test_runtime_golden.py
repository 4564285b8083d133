"""The handshake has the bytes that were captured from the runtimes' own implementation (NRI 0.12.2, ttrpc 1.2.9)."""

import asyncio
from pathlib import Path

from recording_handler import RecordingHandler, running

REGISTER_PLUGIN = bytes.fromhex(
    "00000002 00000044 0000003a 00000001 01 00"
    "0a1c6e72692e706b672e6170692e7631616c706861312e52756e74696d65 120e5265676973746572506c7567696e"
    "1a0a0a04676f6c6412023432"
)
REGISTER_PLUGIN_OK = bytes.fromhex("00000002 0000000a 00000000 00000001 02 00")
CONFIGURE = bytes.fromhex(
    "00000001 0000005d 00000053 00000001 01 00"
    "0a1b6e72692e706b672e6170692e7631616c706861312e506c7567696e 1209436f6e666967757265"
    "1a23120a636f6e7461696e6572641a0676322e342e3020882728d00f320776302e31322e32 20f9a5cfb907"
)
# captured with events 0x208; ours are 0x7f8
CONFIGURE_RESPONSE = bytes.fromhex("00000001 0000000f 00000005 00000001 02 00 120310f80f")
SYNCHRONIZE = bytes.fromhex(
    "00000001 0000003a 00000030 00000003 01 00"
    "0a1b6e72692e706b672e6170692e7631616c706861312e506c7567696e 120b53796e6368726f6e697a65 20aad3d2b907"
)
SYNCHRONIZE_RESPONSE = bytes.fromhex("00000001 0000000a 00000000 00000003 02 00")


async def test_the_handshake_has_the_captured_bytes(tmp_path: Path) -> None:
    finished = asyncio.Event()

    async def runtime(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(REGISTER_PLUGIN)) == REGISTER_PLUGIN
        writer.write(CONFIGURE)  # before the answer to the registration
        assert await reader.readexactly(len(CONFIGURE_RESPONSE)) == CONFIGURE_RESPONSE
        writer.write(REGISTER_PLUGIN_OK)
        for byte in SYNCHRONIZE:  # in the smallest possible pieces
            writer.write(bytes([byte]))
            await writer.drain()
        assert await reader.readexactly(len(SYNCHRONIZE_RESPONSE)) == SYNCHRONIZE_RESPONSE
        finished.set()
        assert await reader.read() == b""  # the plugin disconnects without sending more
        writer.close()

    handler = RecordingHandler()
    server = await asyncio.start_unix_server(runtime, tmp_path / "nri.sock")
    async with server, running(tmp_path / "nri.sock", handler, name="gold", index="42"):
        async with asyncio.timeout(10):
            await finished.wait()
            await handler.is_synchronized.wait()
    assert handler.calls[0] == ("connected", "containerd")
    assert handler.runtime.nri == "v0.12.2"
    assert handler.runtime.unsolicited_updates
