"""Containers that share a claim, use one of its requests, or restart get the CPUs of their requests, and keep them.

Only real nodes show which CDI devices the kubelet passes to a container, the resulting environment and cgroup, and a
restart by the kubelet. The sandbox's story claim-shapes has more cases.
"""

from harness.manifests import ALLOWED_AT_START, RUN_UNTIL_CRASH_FILE, claim, container, cpus, pod
from harness.waiting import eventually
from harness.workspace import Workspace

from dracpu_api.cpuset import CpuSet

ALL = CpuSet.parse("2-7")  # the agent withholds the lowest core; without claims, all other CPUs are shared


def test_each_container_gets_the_cpus_of_the_requests_that_it_names(workspace: Workspace) -> None:
    workspace.apply(claim("split", cpus(2, "for-left"), cpus(1, "for-right")), claim("shared", cpus(2)))
    workspace.run(
        pod(
            "several",
            container("left", ["split/for-left"], script=RUN_UNTIL_CRASH_FILE),
            container("right", ["split/for-right"]),
            container("none"),
            claims={"split": "split", "shared": "shared"},
            init=[container("prepare", ["shared"], script=ALLOWED_AT_START)],
        ),
        pod("second", claims={"shared": "shared"}),
    )

    left, right = workspace.cpus("several", "left"), workspace.cpus("several", "right")
    assert (len(left), len(right)) == (2, 1)
    assert left.isdisjoint(right)
    assert workspace.published_cpus("split") == left | right
    uid = workspace.claim("split")["metadata"]["uid"]
    environment = workspace.environment("several", "left")
    own = {name: value for name, value in environment.items() if name.startswith("DRA_CPU")}
    assert own == {f"DRA_CPUSET_{uid}_for_left": str(left)}
    shared = workspace.published_cpus("shared")
    assert workspace.cpus_at_start("several", "prepare") == workspace.cpus("second") == shared
    assert workspace.cpus("several", "none") == ALL - left - right - shared

    workspace.execute("several", "left", "touch", "/tmp/crash")

    def restarted() -> None:
        status = workspace.container_status("several", "left")
        assert status["restartCount"] == 1
        assert status["ready"]

    eventually(restarted)
    assert workspace.cpus("several", "left") == workspace.cpus_at_start("several", "left") == left
    assert workspace.cpus("several", "none") == ALL - left - right - shared

    workspace.delete_pods("several")  # its shared claim has another user
    assert workspace.cpus("second") == shared
