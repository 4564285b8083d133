"""Files that are modified are reported, once for all that came together, and nothing runs while nothing changes."""

import asyncio
import os
import selectors
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from dracpu_agent.host.inotify import Changes, FileWatch, WatchError
from dracpu_sandbox.machines.tree import directory


def modified(*paths: Path) -> Changes:
    return Changes(frozenset(paths), frozenset(), overflow=False)


def ended(*paths: Path) -> Changes:
    return Changes(frozenset(), frozenset(paths), overflow=False)


def file_at(path: Path) -> Path:
    path.write_text("0\n")
    return path


@pytest.fixture
def file(tmp_path):
    return file_at(tmp_path / "hugetlb.2MB.max")


@pytest.fixture
def other(tmp_path):
    return file_at(tmp_path / "hugetlb.1GB.max")


async def test_a_file_that_another_process_writes_is_reported(file, other):
    with FileWatch() as watch:
        assert watch.add(file)
        assert watch.add(other)
        coming = asyncio.ensure_future(anext(watch))
        writer = await asyncio.create_subprocess_exec("sh", "-c", 'echo 1 > "$0"', file)
        assert await coming == modified(file)
        assert await writer.wait() == 0


async def test_changes_that_came_together_are_reported_once(file, other):
    with FileWatch() as watch:
        for path in (file, other):
            watch.add(path)
        for text in ("1", "2", "3"):
            file.write_text(text)
            other.write_text(text)
        assert await anext(watch) == modified(file, other)
        file.write_text("4")
        assert await anext(watch) == modified(file)


async def test_a_write_of_the_same_text_is_reported(file):
    with FileWatch() as watch:
        watch.add(file)
        with file.open("r+") as opened:
            opened.write("0\n")
        assert await anext(watch) == modified(file)


async def test_changes_are_kept_while_nobody_waits_for_them(file, other):
    with FileWatch() as watch:
        watch.add(file)
        watch.add(other)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        waiting.cancel()
        file.write_text("1")
        await asyncio.sleep(0)
        other.write_text("1")
        seen: set[Path] = set()
        async for changes in watch:
            seen |= changes.modified
            if len(seen) == 2:
                break
        assert seen == {file, other}


async def test_a_file_that_is_not_watched_any_more_is_not_reported(file, other):
    with FileWatch() as watch:
        watch.add(file)
        watch.add(other)
        file.write_text("1")
        watch.remove(file)
        watch.remove(file)
        other.write_text("1")
        assert await anext(watch) == modified(other)
        file.write_text("2")
        other.write_text("2")
        assert await anext(watch) == modified(other)


async def test_a_change_that_is_known_already_is_not_reported_after_the_file_was_removed(file, other):
    with FileWatch() as watch:
        watch.add(file)
        watch.add(other)
        file.write_text("1")
        await turn_of_the_loop()
        watch.remove(file)
        waiting = asyncio.ensure_future(anext(watch))
        await turn_of_the_loop()
        assert not waiting.done()
        other.write_text("1")
        assert await waiting == modified(other)


async def turn_of_the_loop() -> None:
    """Lets the event loop look for events of files, and run what waited for them."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_file_that_is_deleted_is_not_watched_any_more(file, other):
    with FileWatch() as watch:
        watch.add(file)
        watch.add(other)
        file.write_text("1")
        file.unlink()
        assert await anext(watch) == ended(file)
        assert not watch.add(file)
        file_at(file)
        assert watch.add(file)
        file.write_text("2")
        assert await anext(watch) == modified(file)


async def test_a_directory_that_is_deleted_with_its_files(tmp_path):
    (tmp_path / "pod").mkdir()
    files = [file_at(tmp_path / "pod" / name) for name in ("a", "b")]
    with FileWatch() as watch:
        assert all(map(watch.add, files))
        shutil.rmtree(tmp_path / "pod")
        gone: set[Path] = set()
        async for changes in watch:
            gone |= changes.ended
            if len(gone) == 2:
                break
        assert gone == set(files)


async def test_an_absent_file_is_not_watched(tmp_path, file):
    with FileWatch() as watch:
        assert not watch.add(tmp_path / "absent")
        assert not watch.add(file / "below")


async def test_a_path_that_is_added_again_is_watched_as_the_file_that_it_has_now(file, tmp_path):
    """As of a static pod, whose cgroup is created again with the same UID."""
    with FileWatch() as watch:
        watch.add(file)
        former = file.rename(tmp_path / "former")
        file_at(file)
        file.write_text("1")
        watch.add(file)
        former.write_text("2")
        waiting = asyncio.ensure_future(anext(watch))
        await turn_of_the_loop()
        assert not waiting.done()
        file.write_text("3")
        assert await waiting == modified(file)


async def test_a_file_that_came_back_before_its_end_was_reported_is_watched(file):
    with FileWatch() as watch:
        watch.add(file)
        file.unlink()
        await turn_of_the_loop()
        file_at(file)
        assert watch.add(file)
        file.write_text("1")
        assert await anext(watch) == modified(file)


async def test_a_file_that_was_replaced_by_an_absent_one_is_not_watched(file, tmp_path):
    with FileWatch() as watch:
        watch.add(file)
        former = file.rename(tmp_path / "former")
        assert not watch.add(file)
        former.write_text("1")
        waiting = asyncio.ensure_future(anext(watch))
        await turn_of_the_loop()
        assert not waiting.done()
        waiting.cancel()


async def test_two_paths_of_one_file_are_both_reported(file, tmp_path):
    second = tmp_path / "second"
    second.hardlink_to(file)
    with FileWatch() as watch:
        watch.add(file)
        watch.add(second)
        file.write_text("1")
        assert await anext(watch) == modified(file, second)
        watch.remove(file)
        file.write_text("2")
        assert await anext(watch) == modified(second)


async def test_an_open_file_is_watched_by_its_descriptor(file, tmp_path):
    with FileWatch() as watch, file.open() as opened:
        path = Path(f"/proc/self/fd/{opened.fileno()}")
        former = file.rename(tmp_path / "former")
        file_at(file)
        assert watch.add(path)
        file.write_text("1")
        former.write_text("1")
        assert await anext(watch) == modified(path)


async def test_thousands_of_files_are_watched():
    with directory() as root, FileWatch() as watch:
        files = [file_at(root / str(number)) for number in range(3000)]
        assert all(map(watch.add, files))
        for path in files[::1000]:
            path.write_text("1")
        assert await anext(watch) == modified(*files[::1000])
        for path in files:
            path.write_text("2")
        seen: set[Path] = set()
        async for changes in watch:
            assert not changes.overflow
            seen |= changes.modified
            if len(seen) == 3000:
                break


def queue_length() -> int:
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


async def test_events_that_the_kernel_dropped_are_reported_as_an_overflow(file, other):
    with FileWatch() as watch:
        watch.add(file)
        watch.add(other)
        first, second = (os.open(path, os.O_WRONLY) for path in (file, other))
        for _ in range(queue_length() // 2 + 1):  # equal events in a row are one for the kernel
            os.write(first, b"0")
            os.write(second, b"0")
        os.close(first)
        os.close(second)
        overflow = False
        async for changes in watch:
            overflow |= changes.overflow
            if overflow:
                break
        file.write_text("1")
        assert await anext(watch) == modified(file)


def open_files() -> list[str]:
    return sorted(file.name for file in Path("/proc/self/fd").iterdir())


async def test_closing_ends_the_iteration_and_closes_the_descriptor(file):
    before = open_files()
    watch = FileWatch()
    watch.add(file)

    async def changes():
        return [changes async for changes in watch]

    reading = asyncio.ensure_future(changes())
    await turn_of_the_loop()
    watch.close()
    watch.close()
    assert await reading == []
    assert open_files() == before


async def test_another_watch_after_one_was_closed_reports_changes(file):
    for _ in range(2):  # the second gets the same descriptor
        with FileWatch() as watch:
            assert watch.add(file)
            file.write_text("1")
            assert await anext(watch) == modified(file)


class CountingSelector(selectors.DefaultSelector):
    """Counts how often the event loop looks for events."""

    looks = 0

    def select(self, timeout=None):
        self.looks += 1
        return super().select(timeout)


def test_nothing_runs_while_nothing_changes(file, other):
    selector = CountingSelector()

    async def watches() -> int:
        with FileWatch() as watch:
            watch.add(file)
            watch.add(other)
            file.write_text("1")
            other.unlink()
            await anext(watch)
            before = selector.looks
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(watch), 0.1)
            return selector.looks - before

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        assert runner.run(watches()) < 10


def script(*lines: str) -> str:
    head = """
        import asyncio, os, resource
        from pathlib import Path
        from dracpu_agent.host.inotify import FileWatch, WatchLimitError
    """
    return "\n".join([dedent(head), *map(dedent, lines)])


def test_too_few_files_that_the_process_may_open_are_a_typed_error_that_names_the_limits():
    code = script(
        """
        async def main():
            limit = len(os.listdir("/proc/self/fd")) - 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            try:
                FileWatch()
            except WatchLimitError as error:
                print(error)
        asyncio.run(main())
        """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "raise fs.inotify.max_user_instances, which is" in done.stdout
    assert "the number of files that the agent may open, which is" in done.stdout


OWN_LIMITS = ["unshare", "--user", "--map-root-user"]  # a user namespace has limits of its own


def has_user_namespaces() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*OWN_LIMITS, "true"], check=False).returncode == 0


@pytest.mark.skipif(not has_user_namespaces(), reason="this machine lets the user create no user namespace")
def test_too_few_watches_are_a_typed_error_that_names_the_limit(tmp_path):
    code = script(
        f"""
        async def main():
            Path("/proc/sys/user/max_inotify_watches").write_text("3")
            with FileWatch() as watch:
                try:
                    for number in range(4):
                        path = Path("{tmp_path}") / str(number)
                        path.touch()
                        assert watch.add(path)
                except WatchLimitError as error:
                    print(number, error)
                watch.remove(Path("{tmp_path}/0"))
                assert watch.add(path)
        asyncio.run(main())
        """
    )
    done = subprocess.run([*OWN_LIMITS, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"3 {tmp_path}/3 cannot be watched: all watches"), done.stderr
    assert "raise fs.inotify.max_user_watches, which is" in done.stdout


async def test_another_refusal_names_the_file(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with FileWatch() as watch, pytest.raises(WatchError, match="/loop cannot be watched: Too many levels of symbolic"):
        watch.add(tmp_path / "loop")


async def test_a_closed_watch_takes_no_files(file):
    with FileWatch() as watch:
        assert watch.add(file)
    with pytest.raises(WatchError, match="Bad file descriptor"):
        watch.add(file)
