"""The rules in CEL of a custom resource's schema (x-kubernetes-validations).

They are compiled when the definition is served, so that a rule that cannot be compiled is refused there, and evaluated
for each object after everything else has been found right.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from dracpu_sandbox.apiserver.kinds import ages, problems
from dracpu_sandbox.apiserver.kinds.checking import NOWHERE
from dracpu_sandbox.apiserver.kinds.correlation import MISSING, field_of, items_of, joined, same
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.cel.expressions import CelError, Expression, compile_expression

Schema = Mapping[str, Any]

_OLD: Final = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\boldSelf\b""")  # not inside of texts
_RESERVED: Final = frozenset(
    {
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
        "namespace", "null", "package", "return", "true", "var", "void", "while",
    }
)  # fmt: skip
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ONLY: Final = "x-only"  # in a schema: what it does not name is not seen
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


class RuleError(Exception):
    """A rule that does not compile; `field` is its path below the schema."""

    def __init__(self, where: str, rule: Mapping[str, Any], part: str, error: CelError) -> None:
        super().__init__(f"{'' if part == 'rule' else f'{part} '}compilation failed: {error}")
        self.field = f"{where}.{part}"
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, compiled."""

    source: str
    expression: Expression
    is_transition: bool  # compares with the old value
    old_is_optional: bool  # ... and is evaluated where there is none, too
    message: str
    message_expression: Expression | None
    reason: str
    field_path: str

    def violation(self, schema: Schema, value: Any, old: Any, path: str) -> Problem | None:
        """What is wrong by this rule."""
        if self.is_transition and old is MISSING and not self.old_is_optional:
            return None
        variables = {"self": _exposed(schema, value)}
        if self.is_transition:
            known = [] if old is MISSING else [_exposed(schema, old)]
            variables |= {"oldSelves": known} if self.old_is_optional else {"oldSelf": known[0]}
        try:
            if self.expression.evaluate(**variables) is True:
                return None
        except CelError as error:
            # the server has no better words for it either
            return problems.invalid_without_value(path or NOWHERE, f"{error} evaluating rule: {self._words}")
        return self._problem(value, path, self._told(variables))

    def _problem(self, value: Any, path: str, detail: str) -> Problem:
        here = (path + self.field_path).removeprefix(".") or NOWHERE
        match self.reason:
            case "FieldValueRequired":
                return problems.required(here, detail)
            case "FieldValueForbidden":
                return problems.forbidden(here, detail)
            case "FieldValueDuplicate":
                return problems.duplicate(here, value)
            case _ if isinstance(value, (dict, list)) or self.field_path:
                return problems.invalid_without_value(here, detail)
            case _:
                return problems.invalid(here, value, detail)

    @property
    def _words(self) -> str:
        return self.message or f"failed rule: {self.source}"

    def _told(self, variables: Mapping[str, Any]) -> str:
        if self.message_expression is None:
            return self._words
        try:
            text = self.message_expression.evaluate(**variables)
        except CelError:
            return self._words  # a message that cannot be made must not hide the violation
        return text if isinstance(text, str) and text.strip() else self._words


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a schema and of the schemas inside of it."""

    schema: Schema
    own: tuple[Rule, ...] = ()
    fields: Mapping[str, "Rules"] = field(default_factory=dict)
    others: "Rules | None" = None  # of additionalProperties
    items: "Rules | None" = None

    def __bool__(self) -> bool:
        return bool(self.own or self.fields or self.others or self.items)

    def violations(self, value: Any, old: Any = MISSING, path: str = "") -> Iterator[Problem]:
        """What is wrong with a value; parts that have not changed are judged by transition rules alone."""
        if value is None:
            return
        unchanged = old is not MISSING and same(value, old)
        for rule in self.own:
            if unchanged and not rule.is_transition:
                continue
            problem = rule.violation(self.schema, value, old, path)
            if problem is not None:
                yield problem
        if isinstance(value, dict):
            for name, item in value.items():
                inside, here = self.fields.get(name), joined(path, name)
                if inside is None and name not in self.schema.get("properties", {}):
                    inside, here = self.others, f"{path}[{name}]"
                if inside is not None:
                    yield from inside.violations(item, field_of(old, name), here)
        elif isinstance(value, list) and self.items is not None:
            for number, (item, before) in enumerate(zip(value, items_of(self.schema, value, old), strict=True)):
                yield from self.items.violations(item, before, f"{path}[{number}]")


def compile_rules(schema: Schema, where: str = "", *, is_object: bool = True) -> Rules:
    """The rules of a schema; raises RuleError, which tells the path of the rule below `where`."""
    own = tuple(
        _compile(rule, f"{where}.x-kubernetes-validations[{number}]")
        for number, rule in enumerate(schema.get("x-kubernetes-validations", ()))
    )
    fields = {
        name: compile_rules(inside, f"{where}.properties[{name}]", is_object=False)
        for name, inside in schema.get("properties", {}).items()
    }
    others, items = schema.get("additionalProperties"), schema.get("items")
    return Rules(
        schema=_with_metadata(schema) if is_object else schema,
        own=own,
        fields={name: rules for name, rules in fields.items() if rules},
        others=_inside(others, f"{where}.additionalProperties"),
        items=_inside(items, f"{where}.items"),
    )


def _inside(schema: Any, where: str) -> Rules | None:
    if not isinstance(schema, Mapping):
        return None
    return compile_rules(schema, where, is_object=False) or None


def _with_metadata(schema: Schema) -> Schema:
    """Rules of the whole object see only two fields of the metadata."""
    names = {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}}
    return {**schema, "properties": {**schema.get("properties", {}), "metadata": {**names, _ONLY: True}}}


def _compile(rule: Mapping[str, Any], where: str) -> Rule:
    source = rule["rule"]
    rewritten = _OLD.sub(lambda found: found[1] or "oldSelves[?0]", source)
    is_transition, is_optional = rewritten != source, bool(rule.get("optionalOldSelf"))
    variables = ("self",) if not is_transition else ("self", "oldSelves" if is_optional else "oldSelf")
    text = rule.get("messageExpression")
    return Rule(
        source=source,
        expression=_expression(rule, "rule", where, variables, rewritten if is_optional else source),
        is_transition=is_transition,
        old_is_optional=is_optional,
        message=rule.get("message", "").strip(),
        message_expression=_expression(rule, "messageExpression", where, variables, text) if text else None,
        reason=rule.get("reason", "FieldValueInvalid"),
        field_path=re.sub(r"\['([^']*)'\]", r"[\1]", rule.get("fieldPath", "")),
    )


def _expression(rule: Mapping[str, Any], part: str, where: str, variables: tuple[str, ...], source: str) -> Expression:
    try:
        return compile_expression(source, variables)
    except CelError as error:
        raise RuleError(where, rule, part, error) from error


def _exposed(schema: Schema, value: Any) -> Any:
    """A value as expressions see it: by the types of its schema, under names that CEL can spell."""
    if isinstance(value, dict):
        return _exposed_object(schema, value)
    if isinstance(value, list):
        items = schema.get("items")
        return [_exposed(items, one) for one in value] if items else value
    if isinstance(value, str):
        return _exposed_text(schema.get("format", ""), value)
    if schema.get("type") == "number" and isinstance(value, int):
        return float(value)
    return value


def _exposed_object(schema: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
    fields, others = schema.get("properties", {}), schema.get("additionalProperties")
    shown = {}
    for name, item in value.items():
        if name in fields:
            shown[escaped(name)] = _exposed(fields[name], item)
        elif isinstance(others, Mapping):
            shown[name] = _exposed(others, item)
        elif not schema.get(_ONLY):
            shown[name] = item
    return shown


def _exposed_text(name: str, text: str) -> Any:
    if name in {"date", "date-time", "datetime"} and (moment := ages.parse_time(text)):
        stamp = Timestamp()
        stamp.FromDatetime(moment)
        return stamp
    if name == "duration":
        parts = re.findall(r"([0-9.]+)([a-zµ]+)", text)
        if all(unit in _UNITS for _, unit in parts):
            length = Duration()
            length.FromTimedelta(timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts)))
            return length
    return text


def escaped(name: str) -> str:
    """A field's name as an identifier of CEL."""
    if name in _RESERVED:
        return f"__{name}__"
    return re.sub(r"__|[.\-/]", lambda found: _ESCAPES[found[0]], name)
