"""The address on which probes and metrics are served."""

from dracpu_api.errors import DriverError


class ListenError(DriverError):
    """The address is malformed, or it is not possible to listen on it."""


def parse_address(address: str) -> tuple[str | None, int]:
    """Reads "host:port", ":port" (all addresses) and "[IPv6]:port"."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535 or (":" in host and not bracketed):
        raise ListenError(f'"{address}" is not an address: write ":8080", "127.0.0.1:8080" or "[::1]:8080"')
    return (host[1:-1] if bracketed else host) or None, int(port)


def cannot_listen(address: str, error: OSError) -> ListenError:
    """The error to raise when the system refuses to listen on an address."""
    return ListenError(f"cannot listen on {address}: {error.strerror or error}; choose another --http-address")
