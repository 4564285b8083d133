"""The forms that names have: of objects, labels, requests, attributes."""

import re
from collections.abc import Iterator
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.problems import Problem

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = rf"({_QUALIFIED})?"
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"

_GOOD_IDENTIFIER: Final = re.compile(r"([^/]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}")

# the API server's own words, which clients and tests know
BAD_LABEL: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
BAD_SUBDOMAIN: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_BAD_NAME_PART: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
_BAD_VALUE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'({_QUALIFIED})?')"
)
_BAD_IDENTIFIER: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    f"or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '{_IDENTIFIER}')"
)
NO_MORE_THAN_63: Final = "must be no more than 63 bytes"


def label(field: str, value: str) -> Iterator[Problem]:
    """A DNS label: request and device names."""
    if not re.fullmatch(_LABEL, value):
        yield problems.invalid(field, value, BAD_LABEL)
    elif len(value) > 63:
        yield problems.invalid(field, value, NO_MORE_THAN_63)


def subdomain(field: str, value: str, limit: int = 253) -> Iterator[Problem]:
    """A DNS subdomain: names of objects, of drivers."""
    if len(value) > limit:
        yield problems.too_long(field, limit)
    if not re.fullmatch(_SUBDOMAIN, value):
        yield problems.invalid(field, value, BAD_SUBDOMAIN)


def required_subdomain(field: str, value: Any, limit: int = 253) -> Iterator[Problem]:
    """The same, that must be there."""
    if value:
        yield from subdomain(field, value, limit)
    else:
        yield problems.required(field)


def qualified(field: str, value: str) -> Iterator[Problem]:
    """A name with an optional domain: keys of labels and taints."""
    domain, slash, name = value.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, domain):
        yield problems.invalid(field, value, f"prefix part {BAD_SUBDOMAIN}")
    if not name:
        yield problems.invalid(field, value, "name part must be non-empty")
    elif len(name) > 63:
        yield problems.invalid(field, value, f"name part {NO_MORE_THAN_63}")
    if not re.fullmatch(_QUALIFIED, name):
        yield problems.invalid(field, value, _BAD_NAME_PART)


def label_value(field: str, value: str) -> Iterator[Problem]:
    """A label's value."""
    if len(value) > 63:
        yield problems.invalid(field, value, NO_MORE_THAN_63)
    if not re.fullmatch(_VALUE, value):
        yield problems.invalid(field, value, _BAD_VALUE)


def device_identifier(field: str, value: str) -> Iterator[Problem]:
    """The name of an attribute or a capacity, with an optional domain."""
    if _GOOD_IDENTIFIER.fullmatch(value):
        return  # nearly always: a slice has a thousand of them
    domain, slash, name = value.rpartition("/")
    if slash and not domain:
        yield problems.invalid(field, value, "the domain must not be empty")
    if not name:
        yield problems.invalid(field, value, "the name must not be empty")
    elif len(name) > 32:
        yield problems.too_long(field, 32)
    elif not re.fullmatch(_IDENTIFIER, name):
        yield problems.invalid(field, name, _BAD_IDENTIFIER)
    if len(domain) > 63:
        yield problems.too_long(field, 63)


def qualified_identifier(field: str, value: str) -> Iterator[Problem]:
    """The name of an attribute whose domain must be told."""
    if "/" not in value:
        yield problems.invalid(field, value, "a fully qualified name must be a domain and a name separated by a slash")
    else:
        yield from device_identifier(field, value)


def is_extended_resource(name: str) -> bool:
    """Whether a resource may be one of devices: with a domain that is not Kubernetes' own."""
    domain, slash, _ = name.partition("/")
    if not slash or domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or name.startswith("requests."):
        return False
    return not any(qualified("", f"requests.{name}"))
