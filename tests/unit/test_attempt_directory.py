"""An attempt's own directory, and what becomes of directories whose attempts are gone."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from perago.attempt import directory as module
from perago.attempt.directory import AttemptDirectory, Leftover, collect, leftovers
from perago.authoring.paths import MARKER_NAME
from perago.identity import process_start
from perago.protocol.attempt import Attempt

ATTEMPT = Attempt("wf-1", "t-1", 2, "build_ref", 5, 3, "IN_PROGRESS")
TTL = 3600.0
OLD = time.time() - 2 * TTL


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "somewhere" / "root"


def made(root: Path, execution_id: str = "a" * 32, attempt: Attempt = ATTEMPT) -> AttemptDirectory:
    return AttemptDirectory.create(root, attempt, execution_id, "features.build")


def marker_of(directory: AttemptDirectory) -> Path:
    return directory.path / MARKER_NAME


def found(root: Path) -> list[str]:
    return [leftover.path.name for leftover in leftovers(root, TTL, time.time())]


def alter(directory: AttemptDirectory, **changes: Any) -> None:
    marker = marker_of(directory)
    marker.write_text(json.dumps({**json.loads(marker.read_text()), **changes}))


def make_old(directory: AttemptDirectory) -> None:
    os.utime(directory.path, (OLD, OLD))


def ended_process() -> dict[str, Any]:
    """The marks of a process that was there and is no more."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = process_start(child.pid)
    child.communicate()
    return {"pid": child.pid, "process_started": started}


def test_a_directory_is_named_by_task_and_execution_and_the_body_gets_a_part_of_it(root: Path) -> None:
    directory = made(root)

    assert directory.path == root.resolve() / f"t-1-{'a' * 32}"
    assert directory.workspace == directory.path / "workspace"
    assert list(directory.workspace.iterdir()) == []
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700


@pytest.mark.parametrize("task_id", ["../../up", "/etc", "a/b", "x" * 500, "é\n", ""])
def test_any_task_id_stays_one_name_inside_the_root(root: Path, task_id: str) -> None:
    directory = made(root, attempt=replace(ATTEMPT, task_id=task_id))

    assert directory.path.parent == root.resolve()
    assert found(root) == []


def test_a_directory_is_never_used_twice(root: Path) -> None:
    directory = made(root)
    (directory.workspace / "theirs").touch()

    with pytest.raises(FileExistsError):
        made(root)

    assert (directory.workspace / "theirs").exists()
    assert made(root, "b" * 32).path != directory.path


def test_the_marker_tells_who_works_on_what_since_when(root: Path) -> None:
    before = time.time()

    told = json.loads(marker_of(made(root)).read_text())

    assert told["task"] == "features.build"
    assert told["execution_id"] == "a" * 32
    assert told["attempt"]["workflow_instance_id"] == "wf-1"
    assert told["attempt"]["retry_count"] == 2
    assert told["pid"] == os.getpid()
    assert told["process_started"] == process_start(os.getpid())
    assert before <= told["created"] <= time.time()


def test_a_relative_root_works_and_the_working_directory_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    directory = made(Path("relative/root"))

    assert directory.path.is_absolute()
    assert directory.path.is_relative_to(tmp_path)
    assert Path.cwd() == tmp_path


def test_a_directory_that_cannot_be_furnished_is_not_left_behind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_text", full)

    with pytest.raises(OSError, match="disk full"):
        made(root)

    assert list(root.iterdir()) == []


def test_a_directory_that_is_gone_already_is_removed(root: Path) -> None:
    directory = made(root)
    root.chmod(0o755)
    shutil.rmtree(directory.path)

    directory.remove()

    assert stat.S_IMODE(root.stat().st_mode) == 0o755


def test_locked_directories_are_removed_but_nothing_behind_a_link(root: Path, tmp_path: Path) -> None:
    directory = made(root)
    outside = tmp_path / "outside"
    (outside / "kept").mkdir(parents=True)
    outside.chmod(0o500)
    inner = directory.workspace / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    (inner / "link").symlink_to(outside)
    for locked in (inner, inner.parent, directory.workspace, directory.path):
        locked.chmod(0)

    module._unlock(directory.path)  # root needs no permission: that it is given back is seen here alone

    assert stat.S_IMODE(inner.stat().st_mode) == 0o700
    directory.remove()
    assert not directory.path.exists()
    assert (outside / "kept").is_dir()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o500


def test_directories_nested_beyond_recursion_are_at_worst_an_ordinary_error(root: Path) -> None:
    directory = made(root)
    deep = directory.workspace
    for _ in range(sys.getrecursionlimit() + 50):
        deep = deep / "d"
        deep.mkdir()

    with suppress(OSError):  # newer Pythons remove them
        directory.remove()

    middle = directory.workspace / ("d/" * 500)
    if middle.exists():
        middle.rename(root / "lifted")  # or whoever cleans this folder fails


def test_a_live_owners_directory_is_kept_however_old_it_is(root: Path) -> None:
    make_old(made(root))

    assert found(root) == []


def test_a_dead_owners_directory_is_a_leftover_at_once(root: Path) -> None:
    directory = made(root)
    alter(directory, **ended_process())

    assert list(leftovers(root, TTL, time.time())) == [Leftover(directory.path, "its owner has ended")]


def test_a_process_id_used_again_by_another_process_is_no_owner(root: Path) -> None:
    directory = made(root)
    alter(directory, process_started=(process_start(os.getpid()) or 0) - 100)

    assert found(root) == [directory.path.name]


def test_a_zombie_is_no_owner(root: Path) -> None:
    directory = made(root)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    alter(directory, pid=child.pid, process_started=process_start(child.pid))
    assert found(root) == []

    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but not yet collected by its parent

    assert found(root) == [directory.path.name]
    child.wait()


def test_a_marker_forged_with_a_live_process_keeps_the_directory(root: Path) -> None:
    parent = psutil.Process(os.getppid())
    directory = made(root)
    alter(directory, pid=parent.pid, process_started=process_start(parent.pid))
    make_old(directory)

    assert found(root) == []


def spoiled(text: str | bytes) -> Callable[[Path], object]:
    content = text.encode() if isinstance(text, str) else text
    return lambda marker: (marker.unlink(), marker.write_bytes(content))


def linked(marker: Path) -> None:
    """A link to a marker that names an ended owner: were it followed, the directory would go at once."""
    forged = marker.parent / "forged.json"
    forged.write_text(json.dumps({"pid": 2**22 + 1, "process_started": 1.0}))
    marker.unlink()
    marker.symlink_to(forged)


def pipe(marker: Path) -> None:
    marker.unlink()
    os.mkfifo(marker)


def folder(marker: Path) -> None:
    marker.unlink()
    marker.mkdir()


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": spoiled(""),
    "half written": spoiled('{"pid": 1, "process_st'),
    "not text": spoiled(b"\xff\xfe\x00"),
    "another shape": spoiled("[1, 2]"),
    "without a process": spoiled("{}"),
    "null process": spoiled('{"pid": null, "process_started": null}'),
    "process by name": spoiled('{"pid": "init", "process_started": 1}'),
    "endless number": spoiled('{"pid": 1e999, "process_started": 1}'),
    "deeply nested": spoiled("[" * 50_000),
    "huge": spoiled('{"pid": 1, "process_started": 1, "x": "' + "x" * 10_000_000 + '"}'),
    "link": linked,
    "pipe": pipe,
    "folder": folder,
}


@pytest.mark.parametrize("spoil", [pytest.param(spoil, id=kind) for kind, spoil in UNREADABLE.items()])
def test_without_a_readable_marker_only_age_decides(root: Path, spoil: Callable[[Path], object]) -> None:
    directory = made(root)
    spoil(marker_of(directory))

    assert found(root) == []
    make_old(directory)
    assert list(leftovers(root, TTL, time.time())) == [Leftover(directory.path, "it has no readable marker and is old")]


@pytest.mark.parametrize("pid", [-1, 0, 2**22 + 1, 2**40])
def test_a_process_that_cannot_be_is_no_owner(root: Path, pid: int) -> None:
    directory = made(root)
    alter(directory, pid=pid)

    assert found(root) == [directory.path.name]


def test_what_is_not_named_like_an_attempt_is_left_alone(root: Path, tmp_path: Path) -> None:
    elsewhere = made(tmp_path / "elsewhere")
    alter(elsewhere, **ended_process())
    root.mkdir(parents=True)
    (root / "data").mkdir()
    (root / f"file-{'a' * 32}").touch()
    (root / "short-abc").mkdir()
    (root / f"upper-{'A' * 32}").mkdir()
    (root / ("b" * 32)).mkdir()
    (root / f"link-{'c' * 32}").symlink_to(elsewhere.path)
    before = sorted(root.iterdir())
    for entry in before:
        os.utime(entry, (OLD, OLD), follow_symlinks=False)

    assert collect(root, TTL, time.time(), failed=unexpected) == []
    assert sorted(root.iterdir()) == before
    assert elsewhere.workspace.is_dir()


def unexpected(path: Path, error: OSError) -> None:
    raise AssertionError(f"{path}: {error}")


def test_a_root_that_does_not_exist_has_no_leftovers(root: Path) -> None:
    assert collect(root, TTL, time.time(), failed=unexpected) == []


def test_collecting_removes_leftovers_and_keeps_the_rest(root: Path) -> None:
    kept, dead, unmarked = (made(root, letter * 32) for letter in "abc")
    alter(dead, **ended_process())
    (dead.workspace / "sub").mkdir()
    (dead.workspace / "sub").chmod(0o500)
    marker_of(unmarked).unlink()
    make_old(unmarked)

    removed = collect(root, TTL, time.time(), failed=unexpected)

    assert [leftover.path for leftover in removed] == [dead.path, unmarked.path]
    assert list(root.iterdir()) == [kept.path]
    assert kept.workspace.is_dir()


def test_one_that_cannot_be_removed_is_told_and_the_others_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories = [made(root, letter * 32) for letter in "abc"]
    gone = ended_process()
    for directory in directories:
        alter(directory, **gone)
    stuck, remove = directories[1].path, AttemptDirectory.remove
    told: list[tuple[Path, str]] = []

    def sticky(directory: AttemptDirectory) -> None:
        if directory.path == stuck:
            raise OSError("device busy")
        remove(directory)

    monkeypatch.setattr(AttemptDirectory, "remove", sticky)

    removed = collect(root, TTL, time.time(), failed=lambda path, error: told.append((path, str(error))))

    assert [leftover.path for leftover in removed] == [directories[0].path, directories[2].path]
    assert told == [(stuck, "device busy")]
    assert list(root.iterdir()) == [stuck]


def test_a_directory_its_owner_removes_meanwhile_is_no_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = made(root)

    def gone_meanwhile(entry: Path) -> None:
        shutil.rmtree(entry)

    monkeypatch.setattr(module, "_owner", gone_meanwhile)

    assert collect(root, TTL, time.time(), failed=unexpected) == []
    assert not directory.path.exists()
