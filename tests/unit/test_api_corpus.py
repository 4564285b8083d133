"""The models accept and refuse the same objects as the API server, with messages that say what to write."""

import re

import corpus_files
import pytest
from corpus_files import Case
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dracpu_api.cpuset import CpuSet, CpuSetError
from dracpu_api.objects.parts import Settings
from dracpu_api.objects.validate import InvalidObjectError, parse


@pytest.mark.parametrize("case", corpus_files.good(), ids=str)
def test_good_objects_are_accepted(case: Case) -> None:
    made = parse(case.object)
    if case.becomes is not None:
        assert made.spec == parse({**case.object, "spec": case.becomes}).spec


@pytest.mark.parametrize("case", corpus_files.bad(), ids=str)
def test_bad_objects_are_refused_with_the_expected_message(case: Case) -> None:
    assert case.refused is not None
    with pytest.raises(InvalidObjectError) as refused:
        parse(case.object)
    assert any(re.search(case.refused, problem) for problem in refused.value.problems), refused.value


@pytest.mark.parametrize("document", [None, [], {}, {"kind": "Pod"}])
def test_another_kind_of_object_is_refused(document: object) -> None:
    with pytest.raises(InvalidObjectError, match="kind must be CpuDriverConfig or CpuNode"):
        parse(document)


def test_every_problem_has_its_own_line() -> None:
    document = {"kind": "CpuDriverConfig", "spec": {"mode": "numa", "reservedCPUs": "x", "priority": "high"}}
    with pytest.raises(InvalidObjectError) as refused:
        parse(document)
    assert [problem.partition(":")[0] for problem in refused.value.problems] == [
        "spec.mode",
        "spec.reservedCPUs",
        "spec.priority",
    ]


def accepted_as_reserved(text: str) -> bool:
    try:
        Settings(reserved_cpus=text)
    except ValidationError:
        return False
    return True


# beyond digits, commas and dashes: numbers around the highest CPU, which chance would not find
cpuset_like = st.lists(
    st.one_of(st.text("0123456789,-", max_size=4), st.integers(8180, 8200).map(str), st.sampled_from(",-")), max_size=8
).map("".join)


@given(cpuset_like)
def test_the_agent_reads_every_cpuset_that_the_schema_accepts(text: str) -> None:
    if accepted_as_reserved(text):
        CpuSet.parse(text)


@given(cpuset_like)
def test_the_schema_refuses_only_what_is_not_a_cpuset(text: str) -> None:
    if not accepted_as_reserved(text) and not re.search("[0-9]{5}", text):  # 00001 is read, but not worth a rule
        with pytest.raises(CpuSetError):
            CpuSet.parse(text)
