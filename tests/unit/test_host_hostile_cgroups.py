"""Nothing in the cgroup tree and no UID makes the agent read or write anything but the cgroup of the pod itself."""

import os
import shutil
import socket
import threading
from pathlib import Path

import pytest
from cgroup_trees import write_limits, write_tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dracpu_agent.host.beneath import Directory
from dracpu_agent.host.cgroup_errors import CgroupError, InvalidIdError, PodGoneError, UnsafeCgroupError
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.container_usage import ContainerUsages
from dracpu_agent.host.hugetlb import UNLIMITED
from dracpu_agent.host.pod_cgroups import PodCgroups
from dracpu_agent.host.pod_limits import PodLimits

MIB = 2**20
UID = "1-a"
WANTED = {2 * MIB: 8 * MIB}
PLACES = [
    "kubepods/burstable/pod1-a",
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_a.slice",
    "kubelet/kubepods/burstable/pod1-a",
]
FILES = ["hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"]


@pytest.fixture
def mount(tmp_path):
    (tmp_path / "mount").mkdir()
    return tmp_path / "mount"


def limits_of(mount: Path) -> PodLimits:
    return PodLimits(mount, CgroupTree(mount))


def pod_at(root: Path, place: str) -> Path:
    return write_limits(write_tree(root, place), {"2MB": "0"})


def texts(root: Path) -> dict[Path, str]:
    """Every file below a directory, and what is in it."""
    return {path: path.read_text() for path in root.rglob("*") if path.is_file() and not path.is_symlink()}


def positions(place: str) -> list[str]:
    """The paths of each cgroup on the way to a pod's, and of the files in that."""
    above = [str(parent) for parent in reversed(Path(place).parents[:-1])]
    return [*above, place, *(f"{place}/{name}" for name in FILES)]


@pytest.mark.parametrize(("place", "linked"), [(place, path) for place in PLACES for path in positions(place)])
@pytest.mark.parametrize("target", ["outside", "within", "relative"])
def test_no_link_is_followed(tmp_path, mount, place, linked, target):
    """A link is in each position, and leads to the same position of another tree: outside of the mount, or within."""
    pod = pod_at(mount, place)
    other = tmp_path / "other" if target == "outside" else mount / "system.slice"
    pod_at(other, place)
    position = mount / linked
    if position.is_dir():
        shutil.rmtree(position)
    else:
        position.unlink()
    position.symlink_to(os.path.relpath(other / linked, position.parent) if target == "relative" else other / linked)
    assert position.exists()
    before = texts(tmp_path)

    with pytest.raises(UnsafeCgroupError, match="is a link"):
        limits_of(mount).write(UID, WANTED)
    # the pod's own limit of use is written before the link in place of the other file is found
    own = {pod / name for name in FILES}
    assert {path for path, text in texts(tmp_path).items() if before[path] != text} <= own
    if linked != f"{place}/hugetlb.2MB.rsvd.max":  # which is only written
        with pytest.raises(UnsafeCgroupError):
            limits_of(mount).read(UID)


@pytest.mark.parametrize("name", FILES)
def test_a_second_name_of_another_file_is_not_written(tmp_path, mount, name):
    pod = pod_at(mount, PLACES[0])
    victim = tmp_path / "victim"
    victim.write_text("untouched\n")
    (pod / name).unlink()
    (pod / name).hardlink_to(victim)
    with pytest.raises(UnsafeCgroupError):
        limits_of(mount).write(UID, WANTED)
    assert victim.read_text() == "untouched\n"


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # the path of a socket must be short


@pytest.mark.parametrize("make", [make_pipe, make_socket, Path.mkdir])
def test_what_is_no_regular_file_is_neither_read_nor_written_and_nothing_waits_for_it(mount, make, monkeypatch):
    pod = pod_at(mount, PLACES[0])
    monkeypatch.chdir(pod)
    (pod / FILES[0]).unlink()
    make(pod / FILES[0])
    with pytest.raises(UnsafeCgroupError, match=r"hugetlb\.2MB\.max is not a part of the cgroup tree"):
        limits_of(mount).write(UID, WANTED)
    with pytest.raises(UnsafeCgroupError):
        limits_of(mount).read(UID)


def test_a_pipe_that_has_a_reader_is_not_written(mount):
    os.mkfifo(mount / "pipe")
    reader = os.open(mount / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with Directory.at(mount) as directory, pytest.raises(UnsafeCgroupError):
            directory.write("pipe", "0")
        assert os.read(reader, 10) == b""
    finally:
        os.close(reader)


def test_a_file_in_place_of_a_pods_cgroup_is_not_opened(mount):
    pod = pod_at(mount, PLACES[0])
    shutil.rmtree(pod)
    pod.write_text("0\n")
    with pytest.raises(UnsafeCgroupError):
        limits_of(mount).write(UID, WANTED)


def test_another_file_system_in_the_tree_is_not_used(mount):
    (mount / "inner").mkdir()
    (mount / "file").write_text("0\n")
    device = mount.stat().st_dev
    with Directory(mount, os.open(mount, os.O_RDONLY), device + 1) as directory:
        for work in (lambda: directory.beneath(["inner"]), lambda: directory.read("file")):
            with pytest.raises(UnsafeCgroupError, match="on another file system"):
                work()
        with pytest.raises(UnsafeCgroupError):
            directory.write("file", "1")
    assert (mount / "file").read_text() == "0\n"


@pytest.mark.parametrize("name", ["", ".", "..", "../outside", "inner/file", "/etc/hostname", "file\0", "inner/"])
def test_a_name_that_is_a_path_is_refused(tmp_path, mount, name):
    (tmp_path / "outside").write_text("0\n")
    (mount / "inner").mkdir()
    (mount / "inner" / "file").write_text("0\n")
    with Directory.at(mount) as directory:
        for work in (lambda: directory.read(name), lambda: directory.beneath([name])):
            with pytest.raises(UnsafeCgroupError, match="cannot be the name of a file"):
                work()
        with pytest.raises(UnsafeCgroupError):
            directory.write(name, "1")
    assert set(texts(tmp_path).values()) == {"0\n"}


HOSTILE = [
    "",
    ".",
    "..",
    "../pod1-a",
    "1-a/",
    "1-a/../1-a",
    "/",
    "1_a",
    "1-a\n",
    "\n1-a",
    "1-a\0",
    "1 a",
    "ä",
    "\N{ARABIC-INDIC DIGIT ONE}",
    "a" * 129,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_no_uid_or_id_is_refused(mount, text):
    pod_at(mount, PLACES[0])
    before = texts(mount)
    for work in (limits_of(mount).read, limits_of(mount).files, lambda uid: limits_of(mount).write(uid, WANTED)):
        with pytest.raises(InvalidIdError, match="cannot be the UID of a pod"):
            work(text)
    usages = ContainerUsages(mount, CgroupTree(mount))
    with pytest.raises(InvalidIdError):
        usages.read(text, "c1")
    if text != "1_a":
        with pytest.raises(InvalidIdError, match="cannot be the id of a container"):
            usages.read(UID, text)
    assert texts(mount) == before


@pytest.mark.parametrize("uid", ["0" * 32, "f0e1d2c3-0000-4000-8000-0123456789AB", "a" * 128])
def test_uids_of_pods_and_of_static_pods_are_accepted(mount, uid):
    pod_at(mount, f"kubepods/pod{uid}")
    limits_of(mount).write(uid, WANTED)
    assert limits_of(mount).read(uid) == WANTED


odd = st.text(st.sampled_from("pod1-a_./\0\n\\ %{}*~ä") | st.characters(codec="utf-8"), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(odd, st.sampled_from([UID, "kubepods/pod1-a", "burstable", "2-b"])), st.sampled_from(PLACES))
def test_no_uid_makes_the_agent_write_outside_of_a_pods_own_cgroup(tmp_path, uid, place):
    root = tmp_path / "root"
    shutil.rmtree(root, ignore_errors=True)
    mount = root / "mount"
    (mount / "kubepods").mkdir(parents=True)
    pod = pod_at(mount, place)
    for parent in pod.parents[: len(Path(place).parts)]:
        write_limits(parent, {"2MB": "0"})
    write_limits(root, {"2MB": "0"})
    before = texts(root)
    try:
        limits_of(mount).write(uid, WANTED)
    except CgroupError:
        assert texts(root) == before
    else:
        assert uid == UID
        assert {path for path, text in texts(root).items() if before[path] != text} == {pod / name for name in FILES}


@pytest.mark.parametrize("successor", ["link", "pod"])
def test_a_cgroup_that_is_replaced_while_it_is_open_is_not_mistaken_for_its_successor(tmp_path, mount, successor):
    pod = pod_at(mount, PLACES[0])
    former = pod.with_name("former")
    with PodCgroups(mount, CgroupTree(mount)).pod(UID) as opened:
        assert opened is not None
        pod.rename(former)
        if successor == "link":
            pod.symlink_to(pod_at(tmp_path / "elsewhere", PLACES[0]))
        else:
            pod_at(mount, PLACES[0])
        opened.write(FILES[0], "2097152")
    assert (former / FILES[0]).read_text() == "2097152\n"
    assert {(pod / name).read_text() for name in FILES} == {"0\n"}


def test_a_cgroup_that_is_removed_while_it_is_open_is_gone(mount):
    pod = pod_at(mount, PLACES[0])

    def write_after_removal():
        with PodCgroups(mount, CgroupTree(mount)).pod(UID) as opened:
            assert opened is not None
            shutil.rmtree(pod)
            assert (opened.names(), opened.read(FILES[0])) == ([], None)
            opened.write(FILES[0], "0")

    with pytest.raises(PodGoneError, match=r"hugetlb\.2MB\.max does not exist any more"):
        write_after_removal()


def test_a_link_that_comes_and_goes_while_limits_are_written_is_never_followed(tmp_path, mount):
    pod = pod_at(mount, PLACES[0])
    victim = pod_at(tmp_path / "elsewhere", PLACES[0])
    hidden, link = pod.with_name("hidden"), pod.with_name("link")
    link.symlink_to(victim)
    done = threading.Event()

    def swap():
        while not done.is_set():
            pod.rename(hidden)
            link.rename(pod)
            pod.rename(link)
            hidden.rename(pod)

    swapping = threading.Thread(target=swap)
    swapping.start()
    refused = 0
    try:
        for attempt in range(600):
            try:
                limits_of(mount).write(UID, {2 * MIB: 0 if attempt % 2 else UNLIMITED})
            except (PodGoneError, UnsafeCgroupError):
                refused += 1
    finally:
        done.set()
        swapping.join()
    assert refused < 600
    assert {(victim / name).read_text() for name in FILES} == {"0\n"}


def test_nothing_stays_open(mount):
    def opened():
        return len(list(Path("/proc/self/fd").iterdir()))

    pod = pod_at(mount, PLACES[0])
    limits = limits_of(mount)
    before = opened()
    limits.write(UID, WANTED)
    limits.read(UID)
    assert limits.problem() == ""
    assert limits.read("2-b") is None
    (pod / FILES[1]).unlink()
    (pod / FILES[1]).symlink_to("/dev/null")
    with pytest.raises(UnsafeCgroupError):
        limits.write(UID, {2 * MIB: UNLIMITED})
    shutil.rmtree(pod)
    pod.symlink_to(mount)
    with pytest.raises(UnsafeCgroupError):
        limits.read(UID)
    assert opened() == before
