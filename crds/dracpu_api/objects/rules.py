"""The rules by which a value is refused without knowledge of any node.

Each rule has two forms with one meaning: CEL, which the API server evaluates, and Python, which the models evaluate.
Both refuse with one message, which says what to write instead. The CEL uses only what libraries outside of Kubernetes
have, too, `split` of the strings extension, and Kubernetes' quantities: no optional syntax, no two-variable
comprehensions.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from dracpu_api.cpuset import MAX_CPU
from dracpu_api.memory_kinds import RESERVABLE
from dracpu_api.quantity import whole_number

_RANGE = "[0-9]{1,4}(-[0-9]{1,4})?"
CPUSET_PATTERN: Final = f"^({_RANGE}(,{_RANGE})*)?$"
_TOO_HIGH = "(^|[,-])(819[2-9]|8[2-9][0-9]{2}|9[0-9]{3}|[0-9]{5,})($|[,-])"  # above MAX_CPU

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LABEL_KEY_PATTERN: Final = f"^({_DNS_LABEL}([.]{_DNS_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN: Final = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"

# whole bytes, at most 999Ti; every amount that it allows has this form also with the largest suffix, as nodes get it
AMOUNT_PATTERN: Final = (
    "^([1-9][0-9]{0,14}|[1-9][0-9]{0,11}(k|Ki)|[1-9][0-9]{0,8}(M|Mi)|[1-9][0-9]{0,5}(G|Gi)|[1-9][0-9]{0,2}(T|Ti))$"
)
_UP_TO_512 = "(1|2|4|8|16|32|64|128|256|512)"
PAGE_SIZE_PATTERN: Final = f"^((16|32|64|128|256|512)Ki|{_UP_TO_512}Mi|(1|2|4|8|16)Gi)$"

PERCENTAGE_PATTERN: Final = "^([1-9][0-9]?|100)%$"


@dataclass(frozen=True)
class Rule:
    """One reason to refuse a value. In `Annotated[...]`, pydantic checks it and adds it to the schema."""

    cel: str
    holds: Callable[[Any], bool]
    message: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        described = handler(schema)
        described.setdefault("x-kubernetes-validations", []).append({"rule": self.cel, "message": self.message})
        return described

    def _check(self, value: object) -> object:
        if not self.holds(value):
            raise PydanticCustomError("rule", "{message}", {"message": self.message})
        return value


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _ranges(cpuset: str) -> list[list[int]]:
    """The numbers of each range; none when the notation is wrong, which another rule refuses."""
    if not cpuset or not _matches(CPUSET_PATTERN, cpuset):
        return []
    return [[int(number) for number in part.split("-")] for part in cpuset.split(",")]


CPUSET_NOTATION: Final = Rule(
    cel=f"self.matches('{CPUSET_PATTERN}')",
    holds=lambda cpuset: _matches(CPUSET_PATTERN, cpuset),
    message='not a cpuset: write CPU numbers and ranges separated by commas and without spaces, like "0-3,8"',
)

CPUSET_ASCENDING: Final = Rule(
    cel=(
        f"!self.matches('{CPUSET_PATTERN}') || self.split(',').all(part,"
        " !part.contains('-') || int(part.split('-')[0]) <= int(part.split('-')[1]))"
    ),
    holds=lambda cpuset: all(numbers[0] <= numbers[-1] for numbers in _ranges(cpuset)),
    message='a range is reversed: write the lower CPU first, like "0-3" instead of "3-0"',
)

# a search instead of a comparison of numbers, which costs ten times what the API server allows an expression
CPUSET_POSSIBLE: Final = Rule(
    cel=f"!self.matches('{_TOO_HIGH}')",
    holds=lambda cpuset: re.search(_TOO_HIGH, cpuset) is None,
    message=f"a CPU number is too high: Linux numbers CPUs from 0 to {MAX_CPU}",
)

BUDGET: Final = Rule(
    cel=f"type(self) == int ? self >= 1 : self.matches('{PERCENTAGE_PATTERN}')",
    holds=lambda budget: budget >= 1 if isinstance(budget, int) else _matches(PERCENTAGE_PATTERN, budget),
    message=(
        'write a number of nodes, 1 or more, or a percentage from "1%" to "100%";'
        " to hold a rollout, write paused: true instead"
    ),
)

AMOUNT: Final = Rule(
    cel=f"self.matches('{AMOUNT_PATTERN}')",
    holds=lambda amount: _matches(AMOUNT_PATTERN, amount),
    message='not an amount of memory: write a whole number above 0, with a suffix for large ones: "512Mi" or "1Gi"',
)


def whole_pages(size: str) -> Rule:
    """An amount of hugepages consists of whole pages. Kubernetes takes some amounts above 90Ti for no integers, and
    these pass the CEL: nodes round what is left for claims to whole pages."""
    page = whole_number(size)
    assert page is not None
    return Rule(
        cel=(
            f"!self.matches('{AMOUNT_PATTERN}') || !quantity(self).isInteger()"
            f" || quantity(self).asInteger() % {page} == 0"
        ),
        holds=lambda amount: (whole_number(amount) or 0) % page == 0,
        message=f"not whole pages: write a multiple of {size}",
    )


PAGE_SIZE: Final = Rule(
    cel=f"self.matches('{PAGE_SIZE_PATTERN}')",
    holds=lambda size: _matches(PAGE_SIZE_PATTERN, size),
    message=(
        'not a size of hugepages: write a power of two from 16Ki to 16Gi with its largest suffix, like "2Mi" or "1Gi"'
    ),
)

PAGE_SIZES_DIFFER: Final = Rule(
    cel="self.all(size, self.exists_one(other, other == size))",
    holds=lambda sizes: len(set(sizes)) == len(sizes),
    message="a size is listed twice: remove one of the two",
)

MADE_AT_RUN_TIME: Final = Rule(
    cel="!self.endsWith('Gi')",
    holds=lambda size: not size.endswith("Gi"),
    message=(
        "pages of 1Gi and larger cannot be made while a machine runs: write them on the kernel's command line, like"
        " hugepagesz=1G hugepages=4, and remove the entry"
    ),
)

PROVISIONED_ONCE: Final = Rule(
    cel="self.all(entry, self.exists_one(other, other.numaNode == entry.numaNode && other.size == entry.size))",
    holds=lambda entries: len({(entry.numa_node, entry.size) for entry in entries}) == len(entries),
    message="a numaNode is listed twice with the same size: write the sum of the pages into one entry",
)

NUMA_NODES_DIFFER: Final = Rule(
    cel="self.all(entry, self.exists_one(other, other.numaNode == entry.numaNode))",
    holds=lambda entries: len({entry.numa_node for entry in entries}) == len(entries),
    message="a numaNode is listed twice: write all that is reserved on a NUMA node into one entry",
)

RESERVES_SOMETHING: Final = Rule(
    cel=" || ".join(f"has(self.{kind})" for kind in RESERVABLE),
    holds=lambda entry: any(amount is not None for name, amount in entry if name != "numa_node"),
    message="the entry reserves nothing: write memory, or hugepages of a size such as hugepages_2Mi, or remove it",
)

LABEL_KEY: Final = Rule(
    cel=f"self.matches('{LABEL_KEY_PATTERN}')",
    holds=lambda key: _matches(LABEL_KEY_PATTERN, key),
    message='not a label key: write it as on the node, like "node-role.kubernetes.io/worker"',
)

LABEL_VALUE: Final = Rule(
    cel=f"self.matches('{LABEL_VALUE_PATTERN}')",
    holds=lambda value: _matches(LABEL_VALUE_PATTERN, value),
    message="not a label value: write letters, digits, '-', '_' and '.', with a letter or digit at both ends",
)


def _labels_match(labels: Mapping[str, str]) -> bool:
    return all(_matches(LABEL_KEY_PATTERN, key) for key in labels)


LABEL_KEYS: Final = Rule(
    cel=f"self.all(key, key.matches('{LABEL_KEY_PATTERN}'))",
    holds=_labels_match,
    message='a key is not a label key: write it as on the node, like "node-role.kubernetes.io/worker"',
)

# in the model, `values` is an empty tuple when the object has none
OPERATOR_NEEDS_VALUES: Final = Rule(
    cel="!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
    holds=lambda requirement: requirement.operator not in ("In", "NotIn") or bool(requirement.values),
    message="operators In and NotIn compare with values: list at least one, or write operator: Exists or DoesNotExist",
)

OPERATOR_TAKES_NO_VALUES: Final = Rule(
    cel="!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",
    holds=lambda requirement: requirement.operator not in ("Exists", "DoesNotExist") or not requirement.values,
    message="operators Exists and DoesNotExist look at the key alone: remove values, or write operator: In or NotIn",
)
