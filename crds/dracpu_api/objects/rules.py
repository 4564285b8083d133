"""The rules by which a value is refused without knowledge of any node.

Each rule has two forms with one meaning: CEL, which the API server evaluates, and Python, which the models evaluate.
Both refuse with one message, which says what to write instead. The CEL uses only what libraries outside of Kubernetes
have, too, and `split` of the strings extension: no optional syntax, no two-variable comprehensions.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from dracpu_api.cpuset import MAX_CPU

_RANGE = "[0-9]{1,4}(-[0-9]{1,4})?"
CPUSET_PATTERN: Final = f"^({_RANGE}(,{_RANGE})*)?$"
_TOO_HIGH = "(^|[,-])(819[2-9]|8[2-9][0-9]{2}|9[0-9]{3}|[0-9]{5,})($|[,-])"  # above MAX_CPU

_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LABEL_KEY_PATTERN: Final = f"^({_DNS_LABEL}([.]{_DNS_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN: Final = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"

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
