"""Expressions with Kubernetes' functions give what they give in Kubernetes."""

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
        ("quantity('1').add(quantity('500m')).add(2) == quantity('3.5')", True),
        ("quantity('1').sub(quantity('500m')).sub(2).sign()", -1),
        ("quantity('2k').asInteger()", 2000),
        ("quantity('500m').isInteger()", False),
        ("quantity('500m').asApproximateFloat()", 0.5),
        ("isQuantity('1Gi') && !isQuantity('1 GB')", True),
        ("quantity('9223372036854775807').asInteger()", 2**63 - 1),
        ("quantity('9223372036854775808').isInteger()", False),
    ],
)
def test_quantities(source, value) -> None:
    assert evaluate(source) == value


@pytest.mark.parametrize(
    "source, value",
    [
        ("semver('1.2.3').isLessThan(semver('1.10.0'))", True),
        ("semver('1.0.0-alpha.1').compareTo(semver('1.0.0-alpha.beta'))", -1),
        ("semver('1.0.0-rc.1').isGreaterThan(semver('1.0.0'))", False),
        ("semver('1.0.0+a') == semver('1.0.0+b')", True),
        ("semver('v01.2', true).patch()", 0),
        ("isSemver('v1.2') || !isSemver('v1.2', true)", False),
        ("semver('1.2.3').major() * 100 + semver('1.2.3').minor() * 10 + semver('1.2.3').patch()", 123),
    ],
)
def test_versions(source, value) -> None:
    assert evaluate(source) == value


@pytest.mark.parametrize(
    "source, value",
    [
        ("[1, 2, 2].isSorted() && !['b', 'a'].isSorted()", True),
        ("[1, 2, 3].sum() + [3, 1].min() + [3, 1].max()", 10),
        ("sets.contains([1, 2], [2]) && sets.intersects([1], [1, 3]) && sets.equivalent([1, 1, 2], [2, 1])", True),
        ("self.cpus.find('[0-9]+$')", "8"),
        ("self.cpus.find('x')", ""),
        ("self.cpus.findAll('[0-9]+')", ["0", "3", "8"]),
        ("self.cpus.findAll('[0-9]+', 2)", ["0", "3"]),
    ],
)
def test_lists_sets_and_regular_expressions(source, value) -> None:
    assert evaluate(source) == value


@pytest.mark.parametrize(
    "source, value",
    [
        ("ip('fe80::1').isLinkLocalUnicast() && ip('10.0.0.1').isGlobalUnicast()", True),
        ("ip('2001:db8::0001') == ip('2001:db8::1')", True),
        ("ip.isCanonical('2001:db8::0001')", False),
        ("isIP('::ffff:1.2.3.4') || isIP('fe80::1%eth0') || isIP('1.2.3')", False),
        ("cidr('10.1.2.3/8').containsIP('10.200.0.1') && cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16'))", True),
        ("cidr('10.0.0.0/16').containsCIDR('10.0.0.0/8') || cidr('::/0').containsIP(ip('1.2.3.4'))", False),
        ("cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')", True),
        ("cidr('10.1.2.3/8').ip().family() + cidr('10.1.2.3/8').prefixLength()", 12),
        ("isCIDR('10.0.0.0/33') || isCIDR('10.0.0.0/08') || isCIDR('10.0.0.0')", False),
        ("url('https://user@[::1]:8080/a?b=1&b=2').getHost()", "[::1]:8080"),
        ("url('https://user@[::1]:8080/a?b=1&b=2').getHostname()", "::1"),
        ("url('https://x:8080/a b').getScheme() + url('https://x:8080/a b').getPort()", "https8080"),
        ("url('https://x/a b').getEscapedPath()", "/a%20b"),
        ("url('https://x/?b=1&b=2').getQuery()['b']", ["1", "2"]),
        ("isURL('/absolute/path') && !isURL('../relative') && !isURL('no url')", True),
    ],
)
def test_addresses_networks_and_urls(source, value) -> None:
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
def test_what_rules_of_crds_are_made_of(source, value) -> None:
    assert evaluate(source) == value


@pytest.mark.parametrize(
    "source, message",
    [
        ("self.count +", "Syntax error"),
        ("unknown == 1", "undeclared reference to 'unknown'"),
        ("quantity('1').isGreaterThan(2)", "no matching overload for 'isGreaterThan'"),
        ("quantity('1').isGreaterThan(semver('1.0.0'))", "no matching overload for 'isGreaterThan'"),
        ("quantity('1') == 1", "no matching overload"),
    ],
)
def test_a_mistake_is_told_in_one_line_when_it_is_compiled(source, message) -> None:
    with pytest.raises(CelError, match=message) as caught:
        compile_expression(source, ("self",))
    assert str(caught.value).startswith(f"{source}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source, message",
    [
        ("self.absent == 1", 'Key not found in map : "absent"'),
        ("quantity(self.mode)", "grouped.* is not a quantity"),
        ("quantity('500m').asInteger()", "cannot convert value to integer"),
        ("1 / 0", "divide by zero"),
        ("[].max()", "the list is empty"),
        ("self.mode.isGreaterThan(quantity('1'))", "No matching overload"),
        ("semver('1.2')", "is not a semantic version"),
        ("self.mode.find('[[:alpha:]]+')", "alpha:. is not known to find and findAll of the sandbox"),
    ],
)
def test_an_expression_without_a_value_says_why(source, message) -> None:
    with pytest.raises(CelError, match=message):
        evaluate(source)


def test_names_are_bound_in_selectors_of_devices_and_nowhere_else() -> None:
    source = "cel.bind(a, device.attributes['dra.cpu'], a.numa == 0 && a.fast)"
    device = {"attributes": {"dra.cpu": {"numa": 0, "fast": True}}}
    assert compile_expression(source, ("device",)).evaluate(device=device) is True
    with pytest.raises(CelError, match="undeclared reference"):
        compile_expression("cel.bind(a, self, a == 1)", ("self",))


def test_a_value_that_cel_cannot_hold_is_an_error() -> None:
    with pytest.raises(CelError, match="out of range"):
        compile_expression("self", ("self",)).evaluate(self=2**64)


def test_expressions_are_compiled_once() -> None:
    assert compile_expression("self > 1", ("self",)) is compile_expression("self > 1", ("self",))
