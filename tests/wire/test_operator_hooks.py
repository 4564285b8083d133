"""The commands of the chart's hooks, as processes and as functions, against a fake API server over HTTP."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from background import background
from fake_api import FakeApi, JsonObject
from running_operator import kubeconfig

from dracpu_api.errors import NotServedError, RefusedError, UnavailableError
from dracpu_operator.errors import HeldError
from dracpu_operator.hooks import Waits, default_config, require_none, uninstall_check

QUICK = Waits(served=5.0, released=0.0, between=0.01)
HASTY = Waits(served=0.0, released=0.0, between=0.01)


class Chart:
    """A cluster, and the commands that the chart's Jobs run."""

    def __init__(self, api: FakeApi, folder: Path) -> None:
        self.api = api
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(kubeconfig(api.url)))

    async def put(self, waits: Waits = QUICK, **spec: Any) -> str:
        return await default_config(self.kubeconfig, manifest(**spec), waits)

    async def check(self, waits: Waits = QUICK) -> list[str]:
        return [str(holder) for holder in await uninstall_check(self.kubeconfig, waits)]

    @property
    def spec(self) -> JsonObject:
        return dict(self.api.get("cpudriverconfigs", "default")["spec"])

    def edit(self, manager: str, **spec: Any) -> None:
        """Edits the config as a person with kubectl does."""
        self.api.write(manager, "cpudriverconfigs", "default", lambda body: body["spec"].update(spec))

    def claim(self, name: str, *pods: str, driver: str = "dra.cpu", device: str = "cpudev001") -> None:
        result = {"driver": driver, "pool": "n1", "device": device, "request": "r"}
        reserved = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
        self.api.add("resourceclaims", {"metadata": {"name": name}, "status": status}, namespace="default")


def manifest(**spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuDriverConfig"}
    return {**head, "metadata": {"name": "default"}, "spec": spec}


@pytest.fixture
async def chart(tmp_path: Path) -> AsyncIterator[Chart]:
    async with FakeApi() as api:
        yield Chart(api, tmp_path)


async def test_the_config_is_created_and_updated_with_the_values(chart: Chart) -> None:
    assert await chart.put(mode="individual", reservedCPUs="0") == "CpuDriverConfig default: created"
    unchanged = "CpuDriverConfig default: has the values of the chart already"
    assert await chart.put(mode="individual", reservedCPUs="0") == unchanged
    assert await chart.put(reservedCPUs="1") == "CpuDriverConfig default: updated"
    assert chart.spec["reservedCPUs"] == "1"
    assert chart.spec["mode"] == "grouped"  # a field that is not in the values any more has its default
    applied = [request for request in chart.api.requests if request.method == "PATCH"]
    assert {(request.query["fieldManager"], request.query["force"]) for request in applied} == {
        ("dracpu-chart", "false")
    }


async def test_an_edited_config_is_left_alone_and_the_message_names_the_manager(chart: Chart) -> None:
    await chart.put(reservedCPUs="0")
    chart.edit("kubectl-edit", reservedCPUs="0-3")
    written = len(chart.api.written())
    message = await chart.put(reservedCPUs="1")
    entries = chart.api.get("cpudriverconfigs", "default")["metadata"]["managedFields"]
    (when,) = (entry["time"] for entry in entries if entry["manager"] == "kubectl-edit")
    assert f"left as it is: its spec was written by kubectl-edit ({when})" in message
    assert chart.spec["reservedCPUs"] == "0-3"
    assert len(chart.api.written()) == written


async def test_an_edit_between_reading_and_writing_is_noticed_at_the_next_attempt(chart: Chart) -> None:
    await chart.put(reservedCPUs="0")
    before = len(chart.api.requests)
    chart.api.fail("PATCH", 409, "Conflict", "conflict with kubectl-edit")
    async with background(_after(chart, before, lambda: chart.edit("kubectl-edit", reservedCPUs="0-3"))):
        assert "left as it is" in await chart.put(Waits(5.0, 0.0, between=0.2), reservedCPUs="1")


async def _after(chart: Chart, requests: int, act: Any) -> None:
    await chart.api.until(lambda: len(chart.api.requests) >= requests + 2)
    act()


async def test_a_status_that_the_operator_writes_does_not_count_as_an_edit(chart: Chart) -> None:
    await chart.put(reservedCPUs="0")
    status = {"observedGeneration": 1}
    chart.api.write("dracpu-operator", "cpudriverconfigs", "default", lambda body: body.update(status=status), "status")
    assert chart.api.get("cpudriverconfigs", "default")["status"] == status
    assert "updated" in await chart.put(reservedCPUs="1")


async def test_the_commands_wait_for_kinds_that_are_not_served_yet_and_for_lost_answers(chart: Chart) -> None:
    chart.api.fail("(GET|PATCH) cpudriverconfigs", 404, "NotFound", "page not found", times=5)
    chart.api.fail("(GET|PATCH) cpudriverconfigs", 503, "ServiceUnavailable", times=2)
    assert "created" in await chart.put()


async def test_the_commands_do_not_wait_forever(chart: Chart) -> None:
    chart.api.fail("(GET|PATCH) cpudriverconfigs", 404, "NotFound", "page not found", times=100)
    with pytest.raises(NotServedError):
        await chart.put(HASTY)
    chart.api.fail("GET", 503, times=100)
    with pytest.raises(UnavailableError):
        await chart.check(HASTY)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (422, "spec.reservedCPUs: a range is reversed"),
        (403, "cannot patch"),
        (500, "failed to create typed patch object (/default): .spec.reserved: field not declared in schema"),
    ],
)
async def test_a_refusal_is_reported_at_once_with_the_servers_message(chart: Chart, code: int, message: str) -> None:
    chart.api.fail("PATCH", code, message=message, times=2)
    with pytest.raises(RefusedError) as refusal:
        await chart.put(reservedCPUs="3-1")
    assert message in str(refusal.value)
    assert len(chart.api.written()) == 1


async def test_claims_that_hold_cpus_are_named_and_uninstalling_is_refused(chart: Chart) -> None:
    for number in range(501):
        chart.claim(f"c{number:03}", "a", "b")
    named = {"namespace": "default", "name": "old", "uid": "u", "cpus": "4-5"}
    chart.api.add("cpunodes", {"metadata": {"name": "n1"}, "status": {"claims": [named]}})
    found = await chart.check()
    assert len(found) == 502
    assert found[0] == "default/c000 on node n1 holds CPUs: used by pod a, pod b"
    assert found[-1].startswith("default/old on node n1 still holds CPUs 4-5,")
    with pytest.raises(HeldError, match="502 claims hold CPUs: .*--no-hooks"):
        require_none(await uninstall_check(chart.kubeconfig, QUICK))


async def test_claims_on_memory_are_named_and_uninstalling_is_refused(chart: Chart) -> None:
    chart.claim("m", "a", driver="dra.memory", device="memory-numa000")
    assert await chart.check() == ["default/m on node n1 holds memory: used by pod a"]
    with pytest.raises(HeldError, match="1 claim holds memory: .*--no-hooks"):
        require_none(await uninstall_check(chart.kubeconfig, QUICK))


async def test_no_claim_holds_cpus_when_the_kinds_are_not_served(chart: Chart) -> None:
    chart.api.fail("GET (cpunodes|resourceclaims)", 404, "NotFound", times=2)
    assert await chart.check() == []


async def test_the_check_waits_for_claims_that_are_about_to_be_released(chart: Chart) -> None:
    chart.claim("c")
    looking = asyncio.create_task(chart.check(Waits(served=5.0, released=30.0, between=0.01)))
    await chart.api.until(lambda: len(chart.api.requests) > 4)
    chart.api.remove("resourceclaims", "default/c")
    assert await looking == []


async def run(chart: Chart, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "dracpu_operator", *arguments, "--kubeconfig", str(chart.kubeconfig)],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def test_the_commands_print_what_they_did_and_exit_with_a_code(chart: Chart, tmp_path: Path) -> None:
    file = tmp_path / "default.yaml"
    file.write_text(yaml.safe_dump(manifest(mode="individual")))
    assert await run(chart, "default-config", str(file)) == (0, "CpuDriverConfig default: created\n", "")
    file.write_text("kind: Pod\n")
    code, output, errors = await run(chart, "default-config", str(file))
    assert (code, output) == (1, "")
    assert errors == f"dracpu-operator: {file} is not a CpuDriverConfig of dra.cpu/v1alpha1\n"
    code, output, errors = await run(chart, "uninstall-check")
    assert (code, errors) == (0, "")
    assert output == "no claim holds CPUs now; one that is allocated before the agents are deleted is not noticed\n"
