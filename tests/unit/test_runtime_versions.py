"""Which features of a runtime the agent relies on, by the runtime's versions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.runtime.versions import Version, runtime_info


@pytest.mark.parametrize(
    ("name", "version", "nri", "passes_cdi_devices", "unsolicited_updates"),
    [
        ("containerd", "v2.4.0", "v0.12.3", True, True),
        ("containerd", "v2.4.0", "", True, True),
        ("containerd", "2.4.2-k3s1", "", True, True),  # a distribution's build of 2.4.2
        ("containerd", "v2.4.0-rc.1", "", True, False),
        ("containerd", "v2.3.0", "v0.12.0", True, False),
        ("containerd", "v2.3.0", "v0.12.3", True, True),
        ("containerd", "v2.3.0-beta.1-12-gabcdef0", "v0.12.0", False, False),
        ("containerd", "v2.3.7", "v0.12.1-0.20260301120000-abcdef012345", True, False),  # a commit before 0.12.1
        ("containerd", "v2.4.1", "(devel)", True, True),
        ("containerd", "v2.2.7", "", False, False),
        ("containerd", "1.7.34~ds1", "", False, False),
        ("containerd", "1.7.34+unknown", "", False, False),
        ("containerd", "unknown", "", False, False),
        ("containerd", "v10.0.0", "v1.0.0", True, True),
        ("cri-o", "1.36.0", "", False, False),
        ("cri-o", "9.9.9", "v0.12.1", False, True),
        ("", "", "", False, False),
    ],
)
def test_features_are_used_only_for_versions_known_to_support_them(
    name: str, version: str, nri: str, passes_cdi_devices: bool, unsolicited_updates: bool
) -> None:
    info = runtime_info(name, version, nri)
    assert (info.name, info.version, info.nri) == (name, version, nri)
    assert info.passes_cdi_devices is passes_cdi_devices
    assert info.unsolicited_updates is unsolicited_updates


@pytest.mark.parametrize(
    ("name", "version", "complete"),
    [
        ("containerd", "v1.7.25", False),
        ("containerd", "v1.7.26", True),
        ("containerd", "v2.0.2", False),
        ("containerd", "v2.0.3", True),
        ("containerd", "v2.1.0", True),
        ("cri-o", "1.36.0", False),
        ("containerd", "unknown", False),
    ],
)
def test_a_list_is_complete_where_the_runtime_lists_only_between_calls(name: str, version: str, complete: bool) -> None:
    assert runtime_info(name, version, "").lists_completely is complete


@pytest.mark.parametrize(
    ("name", "version", "nri", "policies", "resizes"),
    [
        ("containerd", "v2.4.2", "v0.12.3", True, True),
        ("containerd", "v2.3.0", "v0.12.0", True, True),
        ("containerd", "v2.3.0", "v0.12.0-rc.1", False, True),
        ("containerd", "v2.2.0", "", False, True),
        ("containerd", "v2.2.0-rc.1", "", False, False),
        ("containerd", "v2.1.9", "", False, False),
        ("cri-o", "1.34.0", "", False, True),
        ("cri-o", "1.33.5", "", False, False),
        ("other", "9.9.9", "", False, False),
        ("containerd", "unknown", "", False, False),
    ],
)
def test_memory_policies_and_resizes_are_for_runtimes_that_know_them(
    name: str, version: str, nri: str, policies: bool, resizes: bool
) -> None:
    info = runtime_info(name, version, nri)
    assert (info.memory_policies, info.reports_resizes) == (policies, resizes)


numbers = st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))


@given(numbers, numbers)
def test_versions_are_ordered_by_their_numbers(first: tuple[int, int, int], second: tuple[int, int, int]) -> None:
    parsed = [Version.parse("v{}.{}.{}".format(*version)) for version in (first, second)]
    assert parsed[0] is not None
    assert parsed[1] is not None
    assert (parsed[0] < parsed[1]) is (first < second)


@given(numbers, st.sampled_from(["-rc.1", "-beta.0", "~rc2", "-alpha1", "-dev", "-0.20260101000000-0123456789ab"]))
def test_a_prerelease_precedes_its_release(version: tuple[int, int, int], suffix: str) -> None:
    text = "{}.{}.{}".format(*version)
    early, released = Version.parse(text + suffix), Version.parse(text)
    assert early is not None
    assert released is not None
    assert early < released


@given(st.text(max_size=20))
def test_any_version_text_is_accepted(text: str) -> None:
    runtime_info("containerd", text, text)
