"""Rules for the names of objects, labels, requests and attributes."""

import re
from collections.abc import Callable, Iterator
from typing import Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.problems import Problem

Check = Callable[[str, str], Iterator[Problem]]  # of a field's path and its value

_PART: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_PART}(\.{_PART})*"
_NAME: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]{0,31}"


def _form(pattern: str, limit: int, words: str) -> Check:
    """Returns a check that a name matches a pattern, and has at most `limit` characters."""
    form = re.compile(pattern)

    def check(field: str, value: str) -> Iterator[Problem]:
        if not form.fullmatch(value) or len(value) > limit:
            yield problems.invalid(field, value, f"must {words}, and have at most {limit} characters")

    return check


_LABEL_WORDS: Final = "consist of lower-case letters, digits and '-', with a letter or digit at both ends"
_LOOSE_WORDS: Final = "consist of letters, digits, '-', '_' and '.', with a letter or digit at both ends"
label = _form(_PART, 63, _LABEL_WORDS)
subdomain = _form(_SUBDOMAIN, 253, f"{_LABEL_WORDS}, in parts separated by dots")
driver = _form(_SUBDOMAIN, 63, f"{_LABEL_WORDS}, in parts separated by dots")
label_value = _form(f"({_NAME})?", 63, f"be empty, or {_LOOSE_WORDS}")
# keys of labels and taints
qualified = _form(f"({_SUBDOMAIN}/)?{_NAME}", 317, f"{_LOOSE_WORDS}, after an optional domain and a slash")
# names of attributes and capacities
device_identifier = _form(f"([^/]{{1,63}}/)?{_IDENTIFIER}", 96, "be an identifier after an optional domain and a slash")
qualified_identifier = _form(f"[^/]{{1,63}}/{_IDENTIFIER}", 96, "be a domain and an identifier, separated by a slash")


def is_extended_resource(name: str) -> bool:
    """Returns whether a resource may consist of devices: its name has a domain that does not belong to Kubernetes."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and not f".{domain}".endswith(".kubernetes.io") and not any(qualified("", name))
