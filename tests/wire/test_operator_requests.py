"""Counts the requests of the operator, as a process with the chart's rights, on a real API server with 500 nodes."""

from pathlib import Path

import pytest
from fleet.cluster import fill
from fleet.measure import Run
from fleet.plane import MISSING, assets, control_plane

pytestmark = [pytest.mark.skipif(assets() is None, reason=MISSING), pytest.mark.timeout(300)]

NODES = 500
FEW = 30  # statuses, Events, and lists of what needs a page or two


async def test_the_operator_writes_each_cpu_node_once_per_change(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as plane:
        nodes = await fill(plane.admin, NODES)
        run = Run(plane, nodes)
        async with run.agents() as agents, run.operator() as running:
            await run.first_convergence(running, agents)
            await run.agents_answer(running, agents)
            await run.rollout(running, "all at once", "100%", {"mode": "individual"})
            await run.rollout(running, "by quarters", "25%", {"mode": "grouped"})
        await run.restart()
    requests = run.figures.requests
    for step in ("first convergence", "all at once", "by quarters"):
        assert requests[step]["patch cpunodes"] == NODES, step
    for step in ("agents' first reports", "restart"):
        assert requests[step]["patch cpunodes"] == 0, step
    for step, counted in requests.items():
        assert counted["get cpunodes"] == 0, step
        others = counted.total() - counted["patch cpunodes"] - counted["patch cpunodes/status"]
        assert others <= FEW, (step, counted)
    # status.agent, once after its pod has become ready
    assert sum(counted["patch cpunodes/status"] for counted in requests.values()) <= NODES
