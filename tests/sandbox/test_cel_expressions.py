"""Expressions are compiled and evaluated as in Kubernetes."""

import pytest

from dracpu_sandbox.cel.expressions import CelError, compile_expression

SELF = {"mode": "grouped", "cpus": "0-3,8", "count": 3, "share": 2.5, "tags": ["a", "b"], "none": None, "labels": {}}


def evaluate(source):
    return compile_expression(source, ("self", "oldSelf")).evaluate(self=SELF, oldSelf=SELF)


@pytest.mark.parametrize(
    "source, value",
    [
        ("quantity('1') == quantity('1000m')", True),
        ("quantity('1Ki').compareTo(quantity('1025'))", -1),
        ("quantity('2').isGreaterThan(quantity('1500m'))", True),
        ("quantity('2').isLessThan(quantity('1500m'))", False),
        ("quantity('1').add(quantity('500m')).sub(quantity('250m')) == quantity('1.25')", True),
        ("quantity('2k').asInteger()", 2000),
        ("quantity('500m').isInteger()", False),
        ("quantity('9223372036854775807').asInteger()", 2**63 - 1),
        ("quantity('9223372036854775808').isInteger()", False),
    ],
)
def test_quantities_are_compared_and_computed(source, value) -> None:
    assert evaluate(source) == value


@pytest.mark.parametrize(
    "source, value",
    [
        ("type(self.count) == int ? self.count >= 1 : self.count.matches('%$')", True),
        (
            "self.cpus.split(',').all(p, !p.contains('-') || int(p.split('-')[0]) <= int(p.split('-')[1]))",
            True,
        ),
        ("has(self.absent) || self.none != null", False),
        ("self.?absent.orValue('x') + self.labels[?'a'].orValue('y')", "xy"),
        ("self.share > 2 && self.count == 3.0", True),
        ("self == oldSelf", True),
        ("'%s is %d'.format([self.mode, self.count])", "grouped is 3"),
        ("self.tags.map(tag, tag.upperAscii()).join('-')", "A-B"),
    ],
)
def test_functions_that_the_rules_of_crds_use_are_evaluated(source, value) -> None:
    assert evaluate(source) == value


@pytest.mark.parametrize(
    "source, message",
    [
        ("self.count +", "Syntax error"),
        ("unknown == 1", "undeclared reference to 'unknown'"),
        ("quantity('1').isGreaterThan(2)", "no matching overload for 'isGreaterThan'"),
        ("quantity('1') == 1", "no matching overload"),
    ],
)
def test_a_mistake_is_reported_in_one_line_at_compilation(source, message) -> None:
    with pytest.raises(CelError, match=message) as caught:
        compile_expression(source, ("self",))
    assert str(caught.value).startswith(f"{source}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source, name",
    [("semver('1.2.3').major()", "semver"), ("self.cpus.find('[0-9]+')", "find"), ("isIP('1.2.3.4')", "isIP")],
)
def test_a_function_of_kubernetes_that_is_not_supported_is_refused_by_name(source, name) -> None:
    with pytest.raises(CelError, match=f"does not support Kubernetes' function '{name}'.*KUBEBUILDER_ASSETS"):
        compile_expression(source, ("self",))


@pytest.mark.parametrize(
    "source, message",
    [
        ("self.absent == 1", 'Key not found in map : "absent"'),
        ("quantity(self.mode)", "grouped.* is not a quantity"),
        ("quantity('500m').asInteger()", "cannot convert value to integer"),
        ("1 / 0", "divide by zero"),
        ("self.mode.isGreaterThan(quantity('1'))", "No matching overload"),
    ],
)
def test_a_failed_evaluation_is_reported_with_its_reason(source, message) -> None:
    with pytest.raises(CelError, match=message):
        evaluate(source)


def test_cel_bind_is_available_only_in_selectors_of_devices() -> None:
    source = "cel.bind(a, device.attributes['dra.cpu'], a.numa == 0 && a.fast)"
    device = {"attributes": {"dra.cpu": {"numa": 0, "fast": True}}}
    assert compile_expression(source, ("device",)).evaluate(device=device) is True
    with pytest.raises(CelError, match="undeclared reference"):
        compile_expression("cel.bind(a, self, a == 1)", ("self",))


def test_a_variable_outside_cels_range_is_an_error() -> None:
    with pytest.raises(CelError, match="out of range"):
        compile_expression("self", ("self",)).evaluate(self=2**64)


def test_expressions_are_compiled_once() -> None:
    assert compile_expression("self > 1", ("self",)) is compile_expression("self > 1", ("self",))
