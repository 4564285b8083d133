"""Frames of the mux and messages of ttrpc are decoded wherever the stream is split."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.runtime import mux, ttrpc

connections = st.integers(0, 2**32 - 1)
streams = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(ttrpc.MessageType)
sizes = st.one_of(st.integers(0, 40), st.sampled_from([4085, 4086, 4087, 4096, 9000]))


@st.composite
def split(draw: st.DrawFn, data: bytes) -> list[bytes]:
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def joined(pieces: list[tuple[int, bytes]]) -> dict[int, bytes]:
    streams: dict[int, bytes] = {}
    for connection, piece in pieces:
        streams[connection] = streams.get(connection, b"") + piece
    return streams


@given(
    st.lists(st.tuples(connections, st.binary(min_size=1, max_size=10), sizes), max_size=6),
    st.data(),
)
def test_each_connection_receives_its_own_bytes_in_order(
    messages: list[tuple[int, bytes, int]], data: st.DataObject
) -> None:
    sent: dict[int, bytes] = {}
    wire = b""
    for connection, header, size in messages:
        payload = header[:1] * size
        sent[connection] = sent.get(connection, b"") + header + payload
        wire += mux.encode(connection, header, payload)
    decoder = mux.Decoder()
    received = [piece for part in data.draw(split(wire)) for piece in decoder.feed(part)]
    assert joined(received) == sent


@given(st.integers(1, 20), st.integers(0, 9000))
def test_the_frame_that_starts_a_message_fits_into_the_runtimes_buffer(header: int, payload: int) -> None:
    wire = mux.encode(1, b"h" * header, b"p" * payload)
    (first,) = struct.unpack_from(">I", wire, 4)
    assert first <= 4096
    assert (first == header + payload) is (header + payload <= 4096)


def test_an_empty_frame_is_skipped() -> None:
    decoder = mux.Decoder()
    assert decoder.feed(struct.pack(">II", 1, 0) + mux.encode(2, b"ab", b"")) == [(2, b"ab")]


def test_a_frame_larger_than_any_message_is_a_protocol_error() -> None:
    mux.Decoder().feed(struct.pack(">II", 1, mux.MAX_FRAME))
    with pytest.raises(mux.ProtocolError, match=str(mux.MAX_FRAME + 1)):
        mux.Decoder().feed(struct.pack(">II", 1, mux.MAX_FRAME + 1))


def test_a_message_that_does_not_fit_into_a_frame_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        mux.encode(1, b"", bytes(mux.MAX_FRAME + 1))


@given(st.lists(st.tuples(streams, kinds, st.binary(max_size=60)), max_size=8), st.data())
def test_decoding_returns_the_encoded_messages(
    messages: list[tuple[int, ttrpc.MessageType, bytes]], data: st.DataObject
) -> None:
    wire = b"".join(ttrpc.message_header(stream, kind, body) + body for stream, kind, body in messages)
    decoder = ttrpc.Decoder()
    received = [message for part in data.draw(split(wire)) for message in decoder.feed(part)]
    assert received == [ttrpc.Message(stream, kind, body) for stream, kind, body in messages]


def test_a_message_is_returned_after_its_last_byte() -> None:
    decoder = ttrpc.Decoder()
    wire = ttrpc.message_header(1, ttrpc.MessageType.REQUEST, b"abc") + b"abc"
    assert decoder.feed(wire[:-1]) == []
    assert decoder.feed(wire[-1:]) == [ttrpc.Message(1, 1, b"abc")]


def test_a_message_above_the_limit_is_a_protocol_error() -> None:
    ttrpc.Decoder().feed(struct.pack(">IIBB", ttrpc.MAX_DATA, 1, 1, 0))
    with pytest.raises(mux.ProtocolError, match=str(ttrpc.MAX_DATA + 1)):
        ttrpc.Decoder().feed(struct.pack(">IIBB", ttrpc.MAX_DATA + 1, 1, 1, 0))
