"""Addresses in --http-address are parsed, and invalid ones are refused."""

import pytest

from dracpu_api.listening import ListenError, parse_address


@pytest.mark.parametrize(
    "text, host, port",
    [
        (":8080", None, 8080),
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("[::1]:8080", "::1", 8080),
        ("[::]:0", "::", 0),
        ("localhost:65535", "localhost", 65535),
    ],
)
def test_valid_addresses_are_parsed(text: str, host: str | None, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "8080", ":", ":http", "::1", "::1:8080", ":65536", ":-1", "[::1]", ":٣"])
def test_bad_addresses_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ListenError, match=r'is not an address: write ":8080"'):
        parse_address(text)
