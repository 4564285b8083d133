"""The rules in CEL of a custom resource's schema (x-kubernetes-validations).

They are compiled when a definition is checked, so that a definition with an invalid rule is refused. They are evaluated
for each object that conforms to its schema.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.checking import joined
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.schemas import Schema
from dracpu_sandbox.cel.expressions import CelError, Expression, compile_expression


class RuleError(Exception):
    """A rule that does not compile; `field` is its path below the schema."""

    def __init__(self, where: str, rule: str, error: CelError) -> None:
        super().__init__(f"compilation failed: {error}")
        self.field = where
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, compiled."""

    expression: Expression
    message: str

    def violation(self, value: Any, path: str) -> Problem | None:
        """Returns the problem of a value that violates the rule, or None."""
        where = path or problems.NOWHERE
        try:
            if self.expression.evaluate(self=value) is True:
                return None
        except CelError as error:
            return problems.invalid_without_value(where, f"{error} evaluating rule: {self.message}")
        if isinstance(value, (dict, list)):
            return problems.invalid_without_value(where, self.message)
        return problems.invalid(where, value, self.message)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a schema and of the schemas inside of it."""

    own: tuple[Rule, ...] = ()
    fields: Mapping[str, "Rules"] = field(default_factory=dict)
    others: "Rules | None" = None  # of additionalProperties
    items: "Rules | None" = None

    def __bool__(self) -> bool:
        return bool(self.own or self.fields or self.others or self.items)

    def violations(self, value: Any, path: str = "", unchanged: Collection[str] = ()) -> Iterator[Problem]:
        """Yields the violations in a value; does not check the contents of its `unchanged` fields."""
        for rule in self.own:
            problem = rule.violation(value, path)
            if problem is not None:
                yield problem
        if isinstance(value, dict):
            for name, item in value.items():
                inside, here = self.fields.get(name), joined(path, name)
                if inside is None and self.others is not None:
                    inside, here = self.others, f"{path}[{name}]"
                if inside is not None and name not in unchanged:
                    yield from inside.violations(item, here)
        elif isinstance(value, list) and self.items is not None:
            for number, item in enumerate(value):
                yield from self.items.violations(item, f"{path}[{number}]")


def compile_rules(schema: Schema, where: str) -> Rules:
    """Compiles the rules of a schema at the path `where`; raises RuleError."""
    parts: Mapping[str, Schema] = schema.get("properties", {})
    fields = {name: compile_rules(part, f"{where}.properties[{name}]") for name, part in parts.items()}
    return Rules(
        own=tuple(
            _compile(rule, f"{where}.x-kubernetes-validations[{number}].rule")
            for number, rule in enumerate(schema.get("x-kubernetes-validations", ()))
        ),
        fields={name: rules for name, rules in fields.items() if rules},
        others=_part(schema, "additionalProperties", where),
        items=_part(schema, "items", where),
    )


def _part(schema: Schema, name: str, where: str) -> Rules | None:
    return compile_rules(schema[name], f"{where}.{name}") or None if name in schema else None


def _compile(rule: Mapping[str, str], where: str) -> Rule:
    try:
        expression = compile_expression(rule["rule"], ("self",))
    except CelError as error:
        raise RuleError(where, rule["rule"], error) from error
    return Rule(expression, rule.get("message", "").strip() or f"failed rule: {rule['rule']}")
