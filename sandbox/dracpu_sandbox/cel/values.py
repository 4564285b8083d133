"""Kubernetes' own types in CEL, as protobuf messages: CEL's type checker then knows them by name.

Each message holds one text. Two values that mean the same have the same text, so that CEL's == is right.
"""

import ipaddress
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import total_ordering
from typing import Any, Final

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from dracpu_sandbox.cel.quantity import Quantity

_FILE: Final = "dracpu_sandbox/cel/values.proto"
_NAMES: Final = ("Quantity", "Semver", "IP", "CIDR", "URL")
_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)


def _describe() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package="kubernetes", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    for name in _NAMES:
        message = file.message_type.add(name=name)
        message.field.add(name="text", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL: Final = _describe()
_MESSAGES: Final[dict[str, Any]] = {
    name: message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"kubernetes.{name}")) for name in _NAMES
}
QUANTITY, SEMVER, IP, CIDR, URL = (cel.Type(f"kubernetes.{name}") for name in _NAMES)


def message(kind: str, text: str) -> Message:
    """A value of one of Kubernetes' types."""
    return _MESSAGES[kind](text=text)  # type: ignore[no-any-return]  # classes made at run time


def from_quantity(value: Quantity) -> Message:
    """The fraction keeps all quantities exact, and equal ones equal."""
    return message("Quantity", str(value.number))


def to_quantity(value: Any) -> Quantity:
    """Back from a message."""
    return Quantity(Fraction(value.text))


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version; its build metadata says nothing about order and is dropped."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Raises ValueError."""
        match = _SEMVER.fullmatch(text)
        if not match:
            raise ValueError(f'"{text}" is not a semantic version like "1.2.3"')
        major, minor, patch, prerelease = match.groups()
        return cls(int(major), int(minor), int(patch), tuple(prerelease.split(".")) if prerelease else ())

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}" + ("-" + ".".join(self.prerelease) if self.prerelease else "")

    def __lt__(self, other: "Version") -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[Any, ...]:
        # numbers come before words, and a release after all of its pre-releases
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.prerelease)
        return self.major, self.minor, self.patch, not self.prerelease, parts


def lenient_version(text: str) -> str:
    """Kubernetes' normalize: "v01.2" is read as "1.2.0"."""
    core, mark, rest = re.fullmatch(r"v?([^-+]*)([-+]?)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    numbers = core.split(".")
    if len(numbers) <= 3 and all(number.isdigit() for number in numbers):
        core = ".".join(str(int(number)) for number in [*numbers, "0", "0"][:3])
    return core + mark + rest


def to_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """As Kubernetes reads it: no zone, no IPv4 address inside of an IPv6 one. Raises ValueError."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address.ipv4_mapped):
        raise ValueError(f'"{text}" is not an address: zones and IPv4-mapped IPv6 addresses are not allowed')
    return address


def to_network(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Address (with its host bits) and length of the prefix. Raises ValueError."""
    address, slash, length = text.partition("/")
    found = to_address(address)
    if not slash or not re.fullmatch(r"0|[1-9][0-9]{0,2}", length) or int(length) > found.max_prefixlen:
        raise ValueError(f'"{text}" is not a network like "10.0.0.0/8"')
    return found, int(length)
