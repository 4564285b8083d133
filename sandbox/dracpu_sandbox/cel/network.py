"""Kubernetes' functions on addresses, networks and URLs."""

import ipaddress
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from cel_expr_python import cel

from dracpu_sandbox.cel.declaring import function, method
from dracpu_sandbox.cel.values import CIDR, IP, URL, message, to_address, to_network

_T: Final = cel.Type
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _succeeds(read: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return check


def _ip(value: Any) -> _Address:
    return to_address(value if isinstance(value, str) else value.text)


def _range(value: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(value if isinstance(value, str) else value.text, strict=False)


def _to_cidr(text: str) -> Any:
    address, length = to_network(text)
    return message("CIDR", f"{address}/{length}")


def _contains_address(network: Any, address: Any) -> bool:
    return _ip(address) in _range(network)


def _contains_network(outer: Any, inner: Any) -> bool:
    big, small = _range(outer), _range(inner)
    return big.version == small.version and small.network_address in big and small.prefixlen >= big.prefixlen


def _link_local_multicast(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in ipaddress.ip_network("224.0.0.0/24")
    return address.is_multicast and address.packed[1] & 0x0F == 0x02


def _global_unicast(address: _Address) -> bool:
    """As Go means it: private addresses belong to it."""
    broadcast = str(address) == "255.255.255.255"
    return not (
        broadcast or address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    )


_ADDRESSES: Final = (
    function("ip", IP, (_T.STRING,), lambda text: message("IP", str(to_address(text)))),
    function("isIP", _T.BOOL, (_T.STRING,), _succeeds(to_address)),
    function("ip.isCanonical", _T.BOOL, (_T.STRING,), lambda text: str(to_address(text)) == text),
    method("family", _T.INT, (IP,), lambda one: _ip(one).version),
    method("isUnspecified", _T.BOOL, (IP,), lambda one: _ip(one).is_unspecified),
    method("isLoopback", _T.BOOL, (IP,), lambda one: _ip(one).is_loopback),
    method("isLinkLocalMulticast", _T.BOOL, (IP,), lambda one: _link_local_multicast(_ip(one))),
    method("isLinkLocalUnicast", _T.BOOL, (IP,), lambda one: _ip(one).is_link_local and not _ip(one).is_multicast),
    method("isGlobalUnicast", _T.BOOL, (IP,), lambda one: _global_unicast(_ip(one))),
)

_NETWORKS: Final = (
    function("cidr", CIDR, (_T.STRING,), _to_cidr),
    function("isCIDR", _T.BOOL, (_T.STRING,), _succeeds(to_network)),
    method("containsIP", _T.BOOL, (CIDR, IP), _contains_address),
    method("containsIP", _T.BOOL, (CIDR, _T.STRING), _contains_address),
    method("containsCIDR", _T.BOOL, (CIDR, CIDR), _contains_network),
    method("containsCIDR", _T.BOOL, (CIDR, _T.STRING), _contains_network),
    method("ip", IP, (CIDR,), lambda one: message("IP", one.text.partition("/")[0])),
    method("masked", CIDR, (CIDR,), lambda one: message("CIDR", str(_range(one)))),
    method("prefixLength", _T.INT, (CIDR,), lambda one: _range(one).prefixlen),
)


def _checked_url(text: str) -> str:
    """An absolute URL or an absolute path. Raises ValueError."""
    parts = urlsplit(text)
    absolute = bool(parts.scheme and (parts.netloc or parts.path.startswith("/"))) or text.startswith("/")
    if not absolute or parts.port == 0 or any(character.isspace() for character in parts.netloc):
        raise ValueError(f'"{text}" is not a URL')
    return text


def _host(text: str) -> str:
    return urlsplit(text).netloc.rpartition("@")[2]


def _hostname(text: str) -> str:
    host = _host(text)
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


_URLS: Final = (
    function("url", URL, (_T.STRING,), lambda text: message("URL", _checked_url(text))),
    function("isURL", _T.BOOL, (_T.STRING,), _succeeds(_checked_url)),
    method("getScheme", _T.STRING, (URL,), lambda one: urlsplit(one.text).scheme),
    method("getHost", _T.STRING, (URL,), lambda one: _host(one.text)),
    method("getHostname", _T.STRING, (URL,), lambda one: _hostname(one.text)),
    method("getPort", _T.STRING, (URL,), lambda one: str(urlsplit(one.text).port or "")),
    method(
        "getEscapedPath",
        _T.STRING,
        (URL,),
        lambda one: quote(unquote(urlsplit(one.text).path), safe="/:@!$&'()*+,;=-._~"),
    ),
    method(
        "getQuery",
        _T.Map(_T.STRING, _T.List(_T.STRING)),
        (URL,),
        lambda one: parse_qs(urlsplit(one.text).query, keep_blank_values=True),
    ),
)

NETWORK: Final = (*_ADDRESSES, *_NETWORKS, *_URLS)
