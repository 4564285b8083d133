"""The sampler of the cluster tests, run on a folder that looks like a node: its log shows containers and claims."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.samples import ORDINARY, PAGES, Limits, Memory, SampleLog, State, parse
from harness.sampling import build

from dracpu_api.cpuset import CpuSet

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed: it compiles the sampler")

UID = "11111111-2222"
MI = 1024**2
CGROUPFS = "/kubepods/burstable/podab-cd/{}"
SYSTEMD = "kubepods-burstable-podab_cd.slice:cri-containerd:{}"
SYSTEMD_FOLDER = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice/cri-containerd-{}.scope"
SLEEP = shutil.which("sleep") or "/bin/sleep"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sampler") / "sampler")


class FakeNode:
    """Folders like those of a node, and a sampler that reads them."""

    def __init__(self, root: Path, program: Path) -> None:
        self.bundles, self.cgroups, self.cdi = (root / name for name in ("bundles", "cgroups", "cdi"))
        self._log = root / "log"
        folders = [f"-{folder.name}={folder}" for folder in (self.bundles, self.cgroups, self.cdi)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [program, "-interval=5ms", *folders], stdout=log, stderr=subprocess.DEVNULL
            )

    def bundle(self, container: str, path: str, *env: str, kind: str = "container") -> None:
        """Writes the OCI spec of a container, as the runtime does: atomic it is not."""
        about = {"container-type": kind, "sandbox-namespace": "ns", "sandbox-name": "pod", "container-name": "main"}
        spec = {
            "process": {"env": ["PATH=/bin", *env]},
            "annotations": {f"io.kubernetes.cri.{name}": value for name, value in about.items()},
            "linux": {"cgroupsPath": path.format(container)},
        }
        file = self.bundles / container / "config.json"
        file.parent.mkdir(parents=True)
        text = json.dumps(spec)
        file.write_text(text[:50])
        file.write_text(text)

    def memory(self, path: str, **texts: str) -> None:
        """Writes files of a cgroup; their names have _ in place of dots."""
        folder = self.cgroups / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name.replace("_", ".").replace("numa.stat", "numa_stat")).write_text(f"{text}\n")

    def cgroup(self, path: str, cpus: str, *processes: int) -> None:
        folder = self.cgroups / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.threads").write_text("".join(f"{process}\n" for process in processes))
        for name in ("cpuset.cpus", "cpuset.cpus.effective"):
            (folder / name).write_text(f"{cpus}\n")

    def prepare(self, uid: str, *env: str, driver: str = "cpu") -> None:
        """Replaces the CDI file of a claim atomically, as the agent does."""
        self.cdi.mkdir(exist_ok=True)
        devices = [{"name": line, "containerEdits": {"env": [line]}} for line in env]
        draft = self.cdi / f".dra.k8s.io-{driver}_{uid}.json.draft"
        draft.write_text(json.dumps({"devices": devices}))
        draft.replace(self.cdi / f"dra.k8s.io-{driver}_{uid}.json")

    def log(self) -> SampleLog:
        text = self._log.read_text()
        return parse(text[: text.rfind("\n") + 1])

    def wait_for(self, check: Callable[[SampleLog], bool]) -> SampleLog:
        """Returns the log as soon as it passes the check; a test that waits in vain ends by its time-out."""
        while "\n" not in self._log.read_text() or not check(self.log()):
            assert self._process.poll() is None
            time.sleep(0.005)
        return self.log()

    def stop(self) -> SampleLog:
        self._process.terminate()
        assert self._process.wait(10) == 0
        return self.log()


@pytest.fixture
def node(tmp_path: Path, program: Path) -> Iterator[FakeNode]:
    made = FakeNode(tmp_path, program)
    yield made
    made.stop()


@pytest.fixture
def process() -> Iterator[int]:
    """A process with one thread, on one CPU."""
    with subprocess.Popen([SLEEP, "60"]) as sleeping:
        os.sched_setaffinity(sleeping.pid, ONE)
        yield sleeping.pid
        sleeping.kill()


ONE = {min(os.sched_getaffinity(0))}


@pytest.mark.parametrize(
    ("path", "folder"), [(CGROUPFS, CGROUPFS.lstrip("/")), (SYSTEMD, SYSTEMD_FOLDER)], ids=["cgroupfs", "systemd"]
)
def test_a_container_is_followed_from_its_creation_to_its_end(
    node: FakeNode, process: int, path: str, folder: str
) -> None:
    node.bundle("c1", path, f"DRA_CPUSET_{UID}=2-3")
    log = node.wait_for(lambda log: "c1" in log.snapshots[-1].states)
    assert log.last_state("c1") == State()
    container = log.containers["c1"]
    assert (str(container), container.variables) == ("pod/main (c1)", {f"DRA_CPUSET_{UID}": CpuSet.parse("2-3")})

    node.cgroup(folder.format("c1"), "2-3", process)
    two = CpuSet.parse("2-3")
    log = node.wait_for(lambda log: log.last_state("c1").running)
    node.wait_for(lambda log: log.last_state("c1") == State(two, two, CpuSet(ONE), running=True))

    node.cgroup(folder.format("c1"), "4")
    four = CpuSet.parse("4")
    node.wait_for(lambda log: log.last_state("c1") == State(four, four))

    shutil.rmtree(node.bundles / "c1")
    log = node.wait_for(lambda log: not log.snapshots[-1].states)
    assert "c1" in log.containers


@pytest.mark.parametrize(
    ("path", "folder"), [(CGROUPFS, CGROUPFS.lstrip("/")), (SYSTEMD, SYSTEMD_FOLDER)], ids=["cgroupfs", "systemd"]
)
def test_the_memory_of_a_container_and_of_its_pod_is_followed(node: FakeNode, path: str, folder: str) -> None:
    env = f"DRAMEMORY_{UID}_memory=numanode:1,size:32Mi"
    node.memory(
        folder.format("c1"),
        cpuset_mems="1",
        memory_max="max",
        hugetlb_2MB_max="4194304",
        hugetlb_2MB_rsvd_max="2097152",
        hugetlb_2MB_numa_stat="total=2097152 N0=0 N1=2097152",
    )
    node.memory(folder.rpartition("/")[0], hugetlb_2MB_max="max", hugetlb_2MB_rsvd_max="0")
    node.cgroup(folder.format("c1"), "2-3")
    node.bundle("c1", path, env)
    log = node.wait_for(lambda log: "c1" in log.snapshots[-1].states)
    assert log.containers["c1"].promises == {(ORDINARY, 1): 32 * MI}
    assert log.last_state("c1").memory == Memory(
        CpuSet.parse("1"), None, Limits(4 * MI, 2 * MI), Limits(None, 0), ((1, 2 * MI),)
    )
    node.memory(folder.format("c1"), memory_max=str(32 * MI))
    node.wait_for(lambda log: log.last_state("c1").memory.limit == 32 * MI)


def test_claims_of_memory_are_beside_those_of_cpus(node: FakeNode) -> None:
    node.prepare(UID, f"DRA_CPUSET_{UID}=2-3")
    several = "numanode:0,size:2Mi;numanode:1,size:4Mi"
    node.prepare(UID, f"DRAMEMORY_{UID}_hugepages_2Mi={several}", f"DRAMEMORY_{UID}_NUMANodes=0,1", driver="memory")
    log = node.wait_for(lambda log: bool(log.snapshots[-1].promises))
    assert log.snapshots[-1].promises == {UID: {(PAGES, 0): 2 * MI, (PAGES, 1): 4 * MI}}
    assert set(log.snapshots[-1].claims) == {UID}
    (node.cdi / f"dra.k8s.io-memory_{UID}.json").unlink()
    log = node.wait_for(lambda log: not log.snapshots[-1].promises)
    assert set(log.snapshots[-1].claims) == {UID}


def test_runc_s_own_process_is_not_the_container_s_program(node: FakeNode, tmp_path: Path) -> None:
    runc = tmp_path / "runc"
    shutil.copy(SLEEP, runc)
    node.bundle("c1", CGROUPFS)
    with subprocess.Popen([runc, "60"]) as preparing:
        node.cgroup(CGROUPFS.format("c1").lstrip("/"), "2-3", preparing.pid)
        node.wait_for(lambda log: "c1" in log.snapshots[-1].states and log.last_state("c1").preparing)
        assert not any(snapshot.states["c1"].running for snapshot in node.log().snapshots if snapshot.states)
        preparing.kill()


def test_the_variables_of_a_claim_follow_its_file(node: FakeNode) -> None:
    one, other = f"DRA_CPUSET_{UID}_a=2-3", f"DRA_CPUSET_{UID}_b=5"
    node.prepare(UID, one, other)
    log = node.wait_for(lambda log: bool(log.snapshots[-1].claims))
    found = {name: str(cpus) for name, cpus in log.snapshots[-1].claims[UID].items()}
    assert found == {f"DRA_CPUSET_{UID}_a": "2-3", f"DRA_CPUSET_{UID}_b": "5"}

    node.prepare(UID, one)
    node.wait_for(lambda log: list(log.snapshots[-1].claims[UID]) == [f"DRA_CPUSET_{UID}_a"])
    (node.cdi / f"dra.k8s.io-cpu_{UID}.json").unlink()
    node.wait_for(lambda log: not log.snapshots[-1].claims)


def test_files_of_other_drivers_are_not_claims(node: FakeNode) -> None:
    node.prepare(UID, "A=2")
    (node.cdi / "vendor.com-gpu_x.json").write_text("{}")
    node.prepare("last", "B=3")
    log = node.wait_for(lambda log: "last" in log.snapshots[-1].claims)
    assert log.claims == {UID, "last"}


def test_a_sandbox_is_not_a_container(node: FakeNode) -> None:
    node.bundle("pause", CGROUPFS, kind="sandbox")
    node.bundle("c1", CGROUPFS)
    log = node.wait_for(lambda log: "c1" in log.containers)
    assert "pause" not in log.containers


def test_a_stopped_sampler_completes_its_log(node: FakeNode) -> None:
    node.bundle("c1", CGROUPFS)
    assert not node.wait_for(lambda log: "c1" in log.containers).complete
    log = node.stop()
    assert log.complete
    assert log.readings > 0
    assert log.end >= log.start
