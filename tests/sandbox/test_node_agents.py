"""Tests agents that cannot start, as a task and as a process."""

from pathlib import Path

import pytest

from dracpu_sandbox.node.agents import AgentEndedError, AgentHost, ProcessAgent, TaskAgent


@pytest.mark.parametrize("kind", ["task", "process"])
async def test_an_agent_that_cannot_start_reports_the_reason(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "agent.log"
    options = {"node-name": "n1", "kubeconfig": tmp_path / "none", "sysfs-root": tmp_path, "state-dir": tmp_path}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    host: AgentHost = TaskAgent(arguments) if kind == "task" else ProcessAgent(arguments, log)
    host.read_machine_again()  # has no effect: the agent is not running
    with pytest.raises(AgentEndedError) as ended:
        await host.serve()
    reason = str(ended.value) if kind == "task" else log.read_text()
    assert "set --sysfs-root" in reason
    assert kind == "task" or str(ended.value) == f"the agent has exited with 1; its log is {log}"
