"""Detection of the kubelet's static CPU manager policy."""

from pathlib import Path

import pytest

from dracpu_agent.host.cpu_manager import CpuManagerStateError, is_static, policy_of

NONE = '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
STATIC = '{"policyName":"static","defaultCpuSet":"0-7","entries":{"uid":{"app":"2-3"}},"checksum":14}'


@pytest.mark.parametrize("state, policy", [(NONE, "none"), (STATIC, "static"), ('{"policyName":"new"}', "new")])
def test_the_policy_is_read_from_the_state(state: str, policy: str) -> None:
    assert policy_of(state) == policy


@pytest.mark.parametrize("state", ["", "{", "[]", "null", "{}", '{"policyName":3}', '"static"'])
def test_an_invalid_state_is_refused(state: str) -> None:
    with pytest.raises(CpuManagerStateError, match="cpu_manager_state"):
        policy_of(state)


@pytest.mark.parametrize("state, static", [(NONE, False), (STATIC, True)])
def test_the_file_below_the_kubelets_root_is_read(tmp_path: Path, state: str, static: bool) -> None:
    (tmp_path / "cpu_manager_state").write_text(state)
    assert is_static(tmp_path) is static


def test_without_a_file_the_policy_is_not_static(tmp_path: Path) -> None:
    assert not is_static(tmp_path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cpu_manager_state").mkdir()
    with pytest.raises(CpuManagerStateError, match="cannot read"):
        is_static(tmp_path)


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cpu_manager_state").write_bytes(b"\xff\xfe")
    with pytest.raises(CpuManagerStateError, match="cannot read"):
        is_static(tmp_path)
