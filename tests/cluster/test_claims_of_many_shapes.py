"""Claims and containers meet in every way that Kubernetes allows, and each container gets what it refers to."""

from harness.manifests import ALLOWED_AT_START, RUN_UNTIL_TOLD, SLEEP, claim, container, cpus, pod
from harness.waiting import eventually
from harness.workspace import Workspace

from dracpu_api.cpuset import CpuSet


def test_two_containers_with_a_claim_each(workspace: Workspace) -> None:
    workspace.apply(claim("one", cpus(2)), claim("other", cpus(2)))
    containers = (container("left", ["one"]), container("right", ["other"]), container("beside"))
    workspace.run(pod("both", *containers, claims={"one": "one", "other": "other"}))

    left, right = workspace.cpus("both", "left"), workspace.cpus("both", "right")
    assert (len(left), len(right)) == (2, 2)
    assert left.isdisjoint(right)
    assert workspace.published_cpus("one") == left
    assert workspace.published_cpus("other") == right
    assert workspace.cpus("both", "beside") == CpuSet.parse("2-7") - left - right


def test_a_claim_with_a_request_for_each_container(workspace: Workspace) -> None:
    workspace.apply(claim("both", cpus(2, "for-left"), cpus(1, "for-right")))
    containers = (container("left", ["both/for-left"]), container("right", ["both/for-right"]))
    workspace.run(pod("split", *containers, claims={"both": "both"}))

    left, right = workspace.cpus("split", "left"), workspace.cpus("split", "right")
    assert (len(left), len(right)) == (2, 1)
    assert left.isdisjoint(right)
    assert workspace.published_cpus("both") == left | right
    uid = workspace.claim("both")["metadata"]["uid"]
    # each container is told its own CPUs and nobody else's
    told = {name: value for name, value in workspace.environment("split", "left").items() if name.startswith("DRA_CPU")}
    assert told == {f"DRA_CPUSET_{uid}_for_left": str(left)}


def test_two_containers_share_one_claim(workspace: Workspace) -> None:
    workspace.apply(claim("shared", cpus(2)))
    workspace.run(
        pod("pair", container("left", ["shared"]), container("right", ["shared"]), claims={"shared": "shared"})
    )

    left, right = workspace.cpus("pair", "left"), workspace.cpus("pair", "right")
    assert left == right == workspace.published_cpus("shared")
    assert len(left) == 2


def test_two_pods_share_one_claim_until_the_last_is_gone(workspace: Workspace) -> None:
    workspace.apply(claim("shared", cpus(2)))
    workspace.run(pod("first", claims={"shared": "shared"}), pod("second", claims={"shared": "shared"}), pod("beside"))
    held = workspace.published_cpus("shared")
    assert workspace.cpus("first") == workspace.cpus("second") == held

    workspace.delete_pods("first")
    assert workspace.cpus("second") == held
    assert workspace.cpus("beside").isdisjoint(held)

    workspace.delete_pods("second")

    def given_back() -> None:
        assert workspace.cpus("beside") == CpuSet.parse("2-7")

    eventually(given_back, within=10)


def test_an_init_container_runs_on_its_claim(workspace: Workspace) -> None:
    workspace.apply(claim("two", cpus(2)))
    init = container("prepare", ["two"], script=ALLOWED_AT_START)
    workspace.run(pod("prepared", container("main", ["two"]), claims={"two": "two"}, init=[init]))

    assert workspace.cpus_at_start("prepared", "prepare") == workspace.cpus("prepared")
    assert workspace.cpus("prepared") == workspace.published_cpus("two")


def test_a_claim_of_the_init_container_alone_is_not_the_main_containers(workspace: Workspace) -> None:
    workspace.apply(claim("two", cpus(2)))
    init = container("prepare", ["two"], script=ALLOWED_AT_START)
    workspace.run(pod("prepared", container("main", script=SLEEP), claims={"two": "two"}, init=[init]))

    held = workspace.published_cpus("two")
    assert workspace.cpus_at_start("prepared", "prepare") == held
    assert workspace.cpus("prepared") == CpuSet.parse("2-7") - held


def test_a_container_that_crashes_and_restarts_keeps_its_cpus(workspace: Workspace) -> None:
    workspace.apply(claim("two", cpus(2)))
    main = container("main", ["two"], script=RUN_UNTIL_TOLD)
    neighbour = container("neighbour")
    workspace.run(pod("crashing", main, neighbour, claims={"two": "two"}))
    held = workspace.cpus("crashing")

    workspace.execute("crashing", "main", "touch", "/tmp/crash")

    def restarted() -> None:
        status = workspace.container_status("crashing")
        assert status["restartCount"] == 1
        assert status["ready"]

    eventually(restarted)
    assert workspace.cpus("crashing") == workspace.cpus_at_start("crashing") == held
    assert workspace.cpus("crashing", "neighbour") == CpuSet.parse("2-7") - held
