"""An ordinary kubectl works against the server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import kubectl
import pytest
import yaml
from api_caller import THING, pod, thing
from kubectl import Kubectl

from dracpu_sandbox.apiserver.server import ApiServer

pytestmark = pytest.mark.skipif(kubectl.PROGRAM is None, reason=kubectl.MISSING)

APPLY = ("apply", "-f", "-")


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(crds=[THING]) as running:
        yield running


@pytest.fixture
def ctl(server: ApiServer, tmp_path: Path) -> Kubectl:
    return Kubectl(server, tmp_path)


def manifest(body: dict[str, Any]) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **body})


async def test_an_object_is_applied_changed_and_deleted(ctl: Kubectl) -> None:
    assert await ctl(*APPLY, text=manifest(thing(color="red"))) == "thing.things.dev/one created\n"
    assert await ctl(*APPLY, text=manifest(thing(color="red"))) == "thing.things.dev/one unchanged\n"
    assert await ctl(*APPLY, text=manifest(thing(size=1))) == "thing.things.dev/one configured\n"
    assert yaml.safe_load(await ctl("get", "thing", "one", "-o", "yaml"))["spec"] == {"color": "grey", "size": 1}
    assert await ctl("delete", "thing", "one") == 'thing.things.dev "one" deleted\n'
    assert (
        await ctl.run("get", "thing", "one")
    ).err == 'Error from server (NotFound): things.things.dev "one" not found\n'


async def test_a_pod_is_applied_changed_and_listed(ctl: Kubectl) -> None:
    await ctl(*APPLY, text=manifest(pod()))
    changed = pod()
    changed["spec"]["containers"][0]["image"] = "new"
    assert await ctl(*APPLY, text=manifest(changed)) == "pod/web configured\n"
    await ctl("label", "pod", "web", "a=b")
    header, row = [line.split() for line in (await ctl("get", "pods", "-l", "a=b")).splitlines()]
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["web", "0/1", "Pending", "0"]
    assert await ctl("get", "pod", "web", "-o", "jsonpath={.spec.containers[*].image}") == "new"


async def test_a_misspelt_field_is_refused_by_name(ctl: Kubectl) -> None:
    refused = await ctl.run(*APPLY, text=manifest(thing(colour="red")))
    assert refused.code == 1
    assert 'strict decoding error: unknown field "spec.colour"' in refused.err


async def test_a_conflict_of_server_side_applies_is_reported_and_can_be_forced(ctl: Kubectl) -> None:
    await ctl("apply", "--server-side", "-f", "-", text=manifest(thing(color="red")))
    other = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    conflict = await ctl.run(*other, text=manifest(thing(color="blue")))
    assert conflict.err.startswith('error: Apply failed with 1 conflict: conflict with "kubectl": .spec.color\n')
    assert await ctl(*other, "--force-conflicts", text=manifest(thing(color="blue")))


async def test_a_list_is_applied(ctl: Kubectl) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    everything = {"apiVersion": "v1", "kind": "List", "items": [config_map, thing(color="red")]}
    assert await ctl(*APPLY, text=yaml.safe_dump(everything)) == "configmap/a created\nthing.things.dev/one created\n"
    saved = await ctl("get", "configmap/a", "thing/one", "-o", "yaml")
    await ctl("delete", "-f", "-", text=saved)
    assert await ctl("get", "things,configmaps", "-o", "name") == ""


async def test_an_unknown_kind_is_reported(ctl: Kubectl) -> None:
    refused = await ctl.run(*APPLY, text=manifest({**thing(), "apiVersion": "things.dev/v7"}))
    assert 'no matches for kind "Thing" in version "things.dev/v7"' in refused.err


async def test_events_without_times_can_be_sorted_by_time(ctl: Kubectl) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "reason": "Known"}
    await ctl("create", "-f", "-", text=manifest({**event, "kind": "Event"}))
    assert "Known" in await ctl("get", "events", "--sort-by=.lastTimestamp")


async def test_an_object_is_edited_and_a_misspelt_field_opens_the_editor_again(ctl: Kubectl) -> None:
    await ctl("create", "-f", "-", text=manifest(thing(color="red")))
    await ctl("edit", "thing", "one", KUBE_EDITOR="sed -i s/red/blue/")
    assert await ctl("get", "thing", "one", "-o", "jsonpath={.spec.color}") == "blue"
    refused = await ctl.run("edit", "thing", "one", KUBE_EDITOR="sed -i s/color:/colour:/")
    assert 'things.things.dev "one" is invalid' in refused.err
    assert "Edit cancelled, no valid changes were saved." in refused.err  # nothing was left to change the second time


async def test_a_command_that_needs_a_real_container_is_refused(ctl: Kubectl) -> None:
    await ctl(*APPLY, text=manifest(pod()))
    assert "the sandbox has no exec" in (await ctl.run("exec", "web", "--", "ls")).err
    refused = await ctl.run("debug", "web", "--image=busybox")
    assert "ephemeral containers are disabled for this cluster" in refused.err


async def test_a_watched_table_has_one_header(ctl: Kubectl) -> None:
    await ctl(*APPLY, text=manifest(thing(color="red")))
    watch = await ctl.start("get", "things", "--watch")
    assert watch.stdout is not None
    assert [(await watch.stdout.readline()).split()[0] for _ in range(2)] == [b"NAME", b"one"]
    await ctl("label", "thing", "one", "a=b")
    assert (await watch.stdout.readline()).split()[0] == b"one"
    watch.terminate()
    await watch.communicate()


async def test_a_change_is_waited_for_and_watched(ctl: Kubectl) -> None:
    await ctl(*APPLY, text=manifest(thing(color="red")))
    watch = await ctl.start("get", "things", "--watch", "-o", "jsonpath={.spec.color}{'\\n'}")
    assert watch.stdout is not None
    assert await watch.stdout.readline() == b"red\n"
    waiting = await ctl.start("wait", "thing/one", "--for=jsonpath={.spec.color}=blue", "--timeout=20s")
    await ctl("patch", "thing", "one", "--type=merge", "-p", '{"spec": {"color": "blue"}}')
    assert await watch.stdout.readline() == b"blue\n"
    assert (await waiting.communicate())[0] == b"thing.things.dev/one condition met\n"
    watch.terminate()
    await watch.communicate()


async def test_a_namespace_is_created_from_the_printed_object(ctl: Kubectl) -> None:
    words = ("create", "namespace", "other")
    assert "--dry-run=client -o yaml" in (await ctl.run(*words)).err  # kubectl would send protobuf
    printed = await ctl(*words, "--dry-run=client", "-o", "yaml")
    assert await ctl(*APPLY, text=printed) == "namespace/other created\n"
    assert await ctl("delete", "namespace", "other") == 'namespace "other" deleted\n'


async def test_logs_are_shown(ctl: Kubectl, server: ApiServer) -> None:
    server.logs = lambda namespace, name, container: f"{container} of {namespace}/{name}\n"
    await ctl(*APPLY, text=manifest(pod()))
    assert await ctl("logs", "web") == "main of default/web\n"


async def test_kinds_and_objects_are_described(ctl: Kubectl) -> None:
    assert "things " in await ctl("api-resources", "--api-group=things.dev")
    assert "FIELD: color <string>" in await ctl("explain", "thing.spec.color")
    assert "Name:         default" in await ctl("describe", "namespace", "default")
