"""Rules for the requestPolicy of a capacity, which limits the amounts that claims may request.

Steps, and values that must differ, are compared as whole numbers, rounded up: the gate DRAFractionalCapacityRange,
which compares fractions, is off in API servers of 1.37 that are compatible with 1.36, as they are by default.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.kind import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.cel.quantity import Quantity

_CHOICES: Final = 10
_LARGEST: Final = 2**63 - 1


def check_policy(capacity: JsonObject, path: str, *, is_shared: bool) -> Iterator[Problem]:
    """Yields the problems of a capacity's policy; the capacity itself need not be a multiple of the step."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    if not is_shared:
        yield problems.forbidden(path, "allowMultipleAllocations must be true")
        return
    value = capacity.get("value", "0")
    choices, bounds = policy.get("validValues"), policy.get("validRange")
    if choices and bounds is not None:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        yield problems.forbidden(path, detail)
    elif choices:
        yield from _check_choices(policy.get("default"), choices, value, path)
    elif bounds is not None:
        yield from _check_range(policy.get("default"), bounds, value, path)


def _check_choices(default: str | None, choices: list[str], value: str, path: str) -> Iterator[Problem]:
    if default is None:
        yield problems.required(f"{path}.default", "required when validValues is defined")
        return
    here = f"{path}.validValues"
    if len(choices) > _CHOICES:
        yield problems.too_many(here, len(choices), _CHOICES)
    else:
        amounts = [_number(choice) for choice in choices]
        choices_as_whole = [_whole(choice) for choice in choices]
        for number, amount in enumerate(amounts):
            if choices_as_whole[number] in choices_as_whole[:number]:
                yield problems.duplicate(f"{here}[{number}]", choices[number])
            elif number and amount < amounts[number - 1]:
                detail = "values must be sorted in ascending order"
                yield problems.invalid(f"{here}[{number}]", choices[number], detail)
            if amount > _number(value):
                detail = f"option is larger than capacity value: {value}"
                yield problems.invalid(f"{here}[{number}]", choices[number], detail)
        if _number(default) in amounts:
            return
    yield problems.invalid(here, default, "default value is not valid according to the requestPolicy")


def _check_range(default: str | None, bounds: JsonObject, value: str, path: str) -> Iterator[Problem]:
    here = f"{path}.validRange"
    least, most, step = bounds.get("min"), bounds.get("max"), bounds.get("step")
    if default is None:
        yield problems.required(f"{path}.default", "required when validRange is defined")
    if least is None:
        yield problems.required(f"{here}.min", "required when validRange is defined")
        return
    if _number(least) > _number(value):
        yield problems.invalid(f"{here}.min", least, f"min is larger than capacity value: {value}")
    if default is not None and _number(default) < _number(least):
        yield problems.invalid(f"{here}.default", default, f"default is less than min: {least}")
    if most is not None:
        if _number(least) > _number(most):
            yield problems.invalid(f"{here}.max", least, f"min is larger than max: {most}")
        if _number(most) > _number(value):
            yield problems.invalid(f"{here}.max", most, f"max is larger than capacity value: {value}")
        if default is not None and _number(default) > _number(most):
            yield problems.invalid(f"{here}.default", default, f"default is more than max: {most}")
    if step is None:
        return
    if _number(step) <= 0:
        yield problems.invalid(f"{here}.step", step, "must be greater than zero")
        return
    given = {"default": default, "min": least, "max": most, "step": step}
    out_of_range = list(_check_magnitudes(given, here))
    yield from out_of_range or _check_step(default, least, most, step, value, here)


def _check_magnitudes(amounts: Mapping[str, str | None], here: str) -> Iterator[Problem]:
    for name, amount in amounts.items():
        if amount is not None and _number(amount) < 0:
            yield problems.invalid(f"{here}.{name}", amount, "must be greater than or equal to 0")
        elif amount is not None and _number(amount) > _LARGEST:
            yield problems.invalid(f"{here}.{name}", amount, f"must not be larger than {_LARGEST}")


def _check_step(
    default: str | None, least: str, most: str | None, step: str, value: str, here: str
) -> Iterator[Problem]:
    one_step = Quantity(_number(least) + _number(step))
    if one_step.number > _number(value):
        detail = f"one step {one_step} is larger than capacity value: {value}"
        yield problems.invalid(f"{here}.step", step, detail)
    for amount in (default, most):
        if amount is not None and (_whole(amount) - _whole(least)) % _whole(step):
            detail = f"value is not a multiple of a given step ({step}) from ({least})"
            yield problems.invalid(f"{here}.step", amount, detail)


def _number(text: str) -> Fraction:
    return Quantity.parse(text).number


def _whole(text: str) -> int:
    return Quantity.parse(text).whole()
