"""Quantities in CEL: the type and the functions that Kubernetes adds, for selectors by a device's capacity.

A quantity is a protobuf message, so that CEL's type checker has a type for it. The message holds the number as an exact
fraction: equal quantities have the same text, and CEL's == compares them correctly.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from dracpu_sandbox.cel.quantity import Quantity

_NAME: Final = "kubernetes.Quantity"
_BOOL, _INT, _STRING = cel.Type.BOOL, cel.Type.INT, cel.Type.STRING
_QUANTITY: Final = cel.Type(_NAME)
_INTEGERS: Final = range(-(2**63), 2**63)


def _describe() -> descriptor_pool.DescriptorPool:
    package, _, name = _NAME.partition(".")
    file = descriptor_pb2.FileDescriptorProto(name="dracpu_sandbox/cel/quantity.proto", package=package)
    field = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name=name)
    message.field.add(name="text", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL: Final = _describe()
_MESSAGE: Final[Any] = message_factory.GetMessageClass(POOL.FindMessageTypeByName(_NAME))


def from_quantity(value: Quantity) -> Message:
    """Converts a quantity to the message that expressions see."""
    return _MESSAGE(text=str(value.number))  # type: ignore[no-any-return]  # the class is made at run time


def _number(value: Any) -> Fraction:
    return Fraction(value.text)


def _from_number(number: Fraction) -> Message:
    return from_quantity(Quantity(number))


def _is_integer(value: Any) -> bool:
    number = _number(value)
    return number.denominator == 1 and int(number) in _INTEGERS


def _as_integer(value: Any) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(_number(value))


def _compare(left: Any, right: Any) -> int:
    return int(_number(left) > _number(right)) - int(_number(left) < _number(right))


def _function(name: str, result: cel.Type, call: Callable[..., Any], *parameters: cel.Type) -> cel.FunctionDecl:
    """Declares `name(parameters)`."""
    return cel.FunctionDecl(name, [cel.Overload(name, return_type=result, parameters=list(parameters), impl=call)])


def _method(name: str, result: cel.Type, call: Callable[..., Any], *others: cel.Type) -> cel.FunctionDecl:
    """Declares `quantity.name(others)`."""
    parameters = [_QUANTITY, *others]
    overload = cel.Overload(f"quantity_{name}", return_type=result, parameters=parameters, is_member=True, impl=call)
    return cel.FunctionDecl(name, [overload])


FUNCTIONS: Final = (
    _function("quantity", _QUANTITY, lambda text: from_quantity(Quantity.parse(text)), _STRING),
    _method("isInteger", _BOOL, _is_integer),
    _method("asInteger", _INT, _as_integer),
    _method("add", _QUANTITY, lambda left, right: _from_number(_number(left) + _number(right)), _QUANTITY),
    _method("sub", _QUANTITY, lambda left, right: _from_number(_number(left) - _number(right)), _QUANTITY),
    _method("compareTo", _INT, _compare, _QUANTITY),
    _method("isGreaterThan", _BOOL, lambda left, right: _compare(left, right) > 0, _QUANTITY),
    _method("isLessThan", _BOOL, lambda left, right: _compare(left, right) < 0, _QUANTITY),
)
