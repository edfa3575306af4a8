"""Names and kinds of files that could do harm: they round-trip whole, or are refused by name."""

import os
import socket
import unicodedata
from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perago.attempt.lifecycle import Completed
from perago.authoring.errors import TaskExecutionError
from perago.authoring.paths import MARKER_NAME
from perago.authoring.workspace import WorkspaceSpec
from tests.conftest import Servers
from tests.integration.support import Site, WatchedLake, WatchedObjects, failed, task_of, writing

WHOLE = WorkspaceSpec(prefix="/")
PART = WorkspaceSpec(prefix="/p")
HOLDABLE = [
    "back\\slash",
    "..\\..\\up",
    "C:",
    "D:/windows",
    "C:\\windows",
    "tab\there",
    "new\nline",
    "return\r",
    "bell\x07 escape\x1b[31m delete\x7f",
    "%2F",
    "%2e%2e/%2fetc",
    "%00",
    "100%",
    "%zz",
    " leading and trailing ",
    "#?&+=;",
    "a&path=b",
    "?",
    "*",
    "[a]{b}~$`'\"<>|",
    "🐘/🦆.txt",
    unicodedata.normalize("NFC", "cafe\u0301"),
    unicodedata.normalize("NFD", "caf\u00e9"),
    "\u202eright to left",
    "\ufeff\u2028\uffff",
    "-rf",
    "--help",
    ".hidden/.file",
    "...",
    "..up",
    "up..",
    "n" * 255,
    "é" * 127,
    "/".join(["deep"] * 200),
    "d/" * 500 + "x",
    "manifest.jsonl",
    "workspace/incoming/0",
    f"{MARKER_NAME}.bak",
    # One sorts around the slash of the other: the order of bytes is not the order of directories.
    "order/x",
    "order-x",
    "order.x",
    "order0",
    "order\x01",
]
UNHOLDABLE = {
    "..": "..",
    ".": ".",
    "parent": "../outside",
    "parent in the middle": "a/../../outside",
    "far parent": "../../../../../../../../tmp/outside",
    "here": "./a",
    "here in the middle": "a/./b",
    "leading slash": "/outside",
    "absolute": "//etc/outside",
    "double slash": "a//b",
    "trailing slash": "a/",
    "long name": "n" * 256,
    "long name in bytes": "é" * 128,
    "NUL": "nul\0byte",
}


@pytest.fixture
def site(servers: Servers, repository: str, tmp_path: Path) -> Generator[Site]:
    made = Site.at(servers, repository, tmp_path / "worker" / "root")
    made.root.mkdir(parents=True)
    with made.http:
        yield made


def surroundings(site: Site) -> list[str]:
    """All that lies around the attempts' directories."""
    top = site.root.parents[1]
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if not path.is_relative_to(site.root))


def files_of(workspace: Path) -> dict[str, bytes]:
    return {
        str(Path(folder, name).relative_to(workspace)): Path(folder, name).read_bytes()
        for folder, _, names in os.walk(workspace)
        for name in names
    }


def test_every_name_a_file_system_can_hold_comes_down_and_stays_as_it_is(site: Site) -> None:
    there = {f"p/{name}": name.encode() * 2 for name in HOLDABLE}
    site.commit(there)
    seen: dict[str, bytes] = {}
    objects = WatchedObjects(site.servers)

    def body(workspace: Path) -> None:
        seen.update(files_of(workspace))
        (workspace / "touched").write_bytes(b"!")

    outcome = site.run(task_of(body, PART), objects=objects)

    assert isinstance(outcome, Completed), outcome
    assert seen == {name: name.encode() * 2 for name in HOLDABLE}
    assert site.tree() == {**there, "p/touched": b"!"}
    assert objects.stored == ["p/touched"]
    assert site.leftovers() == []


def test_every_name_can_be_changed_made_and_deleted(site: Site) -> None:
    old, gone, short = HOLDABLE[::2], HOLDABLE[1::2], [name for name in HOLDABLE if len(name) < 1000]
    site.commit({f"p/{name}": b"old" for name in HOLDABLE})

    def body(workspace: Path) -> None:
        for name in old:
            (workspace / name).write_bytes(b"changed")
        for name in gone:
            (workspace / name).unlink()
        for name in short:
            writing(f"made/{name}")(workspace)

    outcome = site.run(task_of(body, PART))

    assert isinstance(outcome, Completed), outcome
    made = {f"p/made/{name}": b"new" for name in short}
    assert site.tree() == {**{f"p/{name}": b"changed" for name in old}, **made}


@pytest.mark.parametrize("spec", [WHOLE, PART], ids=["whole repository", "prefix"])
@pytest.mark.parametrize("name", [pytest.param(name, id=what) for what, name in UNHOLDABLE.items()])
def test_a_name_no_file_can_bear_is_refused_before_the_body_runs(site: Site, name: str, spec: WorkspaceSpec) -> None:
    path = f"{spec.prefix}/{name}" if spec.prefix else name
    site.commit({"p/good": b"good", path: b"bad"})
    before, ran = surroundings(site), list[Path]()

    outcome = failed(site.run(task_of(ran.append, spec)))

    assert isinstance(outcome.error, TaskExecutionError)
    assert f"object {path!r} cannot be a file of the workspace: " in outcome.failure.reason
    assert ran == []
    assert surroundings(site) == before
    assert site.leftovers() == []


def test_an_object_whose_name_is_not_text_is_refused(site: Site) -> None:
    site.ask("POST", "/branches/main/objects?path=p/%ff%fe", content=b"x")
    site.commit({})
    ran: list[Path] = []

    outcome = failed(site.run(task_of(ran.append, PART)))

    assert "p/\ufffd\ufffd" in outcome.failure.reason
    assert ran == []


@pytest.mark.parametrize("deeper", ["a/b", "a/b/c/d"])
def test_an_object_beside_objects_below_its_name_is_refused(site: Site, deeper: str) -> None:
    site.commit({"p/a": b"file", f"p/{deeper}": b"below"})
    ran: list[Path] = []

    outcome = failed(site.run(task_of(ran.append, PART)))

    assert "object 'p/a" in outcome.failure.reason
    assert "cannot be a file of the workspace" in outcome.failure.reason
    assert ran == []
    assert site.leftovers() == []


def test_the_markers_name_belongs_to_perago_in_both_directions(site: Site) -> None:
    theirs = {f"p/{MARKER_NAME}": b"root", f"p/sub/{MARKER_NAME}": b"nested", f"p/x/{MARKER_NAME}/y": b"as a folder"}
    site.commit({**theirs, "p/a": b"a"})
    seen: dict[str, bytes] = {}

    def body(workspace: Path) -> None:
        seen.update(files_of(workspace))
        for name in (MARKER_NAME, f"new/{MARKER_NAME}", "b"):
            writing(name)(workspace)

    outcome = site.run(task_of(body, PART))

    assert isinstance(outcome, Completed), outcome
    assert seen == {"a": b"a"}
    assert site.tree() == {**theirs, "p/a": b"a", "p/b": b"new"}


def symlink(to: str) -> Callable[[Path], object]:
    return lambda at: at.symlink_to(to)


def bound_socket(at: Path) -> None:
    here = Path.cwd()
    os.chdir(at.parent)  # a socket's address is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(at.name)
    finally:
        os.chdir(here)


SPECIAL: dict[str, tuple[Callable[[Path], object], str]] = {
    "to a file": (symlink("../a"), "symlinks"),
    "to a directory": (symlink(".."), "symlinks"),
    "to nothing": (symlink("nowhere"), "symlinks"),
    "to itself": (symlink("link"), "symlinks"),
    "to the outside": (symlink("/etc/passwd"), "symlinks"),
    "fifo": (os.mkfifo, "pipes, sockets or devices"),
    "socket": (bound_socket, "pipes, sockets or devices"),
}


@pytest.mark.parametrize(("make", "what"), [pytest.param(*case, id=kind) for kind, case in SPECIAL.items()])
def test_what_is_no_plain_file_is_refused_before_anything_is_staged(
    site: Site, make: Callable[[Path], object], what: str
) -> None:
    head = site.commit({"p/a": b"a"})
    lake = WatchedLake(site.servers)

    def body(workspace: Path) -> None:
        writing("path/to/file")(workspace)
        make(workspace / "path/to/link")

    outcome = failed(site.run(task_of(body, PART), lake=lake))

    assert str(outcome.error) == f"workspace publication does not support {what}: path/to/link"
    assert lake.calls == []
    assert site.head() == head
    assert site.leftovers() == []


def test_a_link_is_removed_with_the_directory_but_never_what_it_points_to(site: Site, tmp_path: Path) -> None:
    site.commit({"p/a": b"a"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"precious")
    outside.chmod(0o500)

    def body(workspace: Path) -> None:
        (workspace / "link").symlink_to(outside)
        (workspace / "file").symlink_to(outside / "precious")

    failed(site.run(task_of(body, PART)))

    assert (outside / "precious").read_bytes() == b"precious"
    assert outside.stat().st_mode & 0o777 == 0o500
    assert site.leftovers() == []


def test_a_file_name_that_is_not_utf8_is_refused_before_anything_is_staged(site: Site) -> None:
    site.commit({"p/a": b"a"})
    lake = WatchedLake(site.servers)

    outcome = failed(site.run(task_of(writing(os.fsdecode(b"bad-\xff")), PART), lake=lake))

    assert str(outcome.error).endswith(r"does not support file names that are not UTF-8: bad-\xff")
    assert lake.calls == []
    assert site.leftovers() == []


def test_a_path_longer_than_lakefs_takes_fails_by_name(site: Site) -> None:
    head = site.commit({"p/a": b"a"})
    name = "/".join(["long" * 50] * 6)

    outcome = failed(site.run(task_of(writing(name), PART)))

    assert name[:300] in outcome.failure.reason
    assert site.head() == head
    assert site.leftovers() == []


def test_directories_without_files_do_not_exist_in_lakefs(site: Site) -> None:
    head = site.commit({"p/a": b"a"})

    def body(workspace: Path) -> None:
        (workspace / "empty" / "emptier").mkdir(parents=True)

    assert site.publish(body, spec=PART) == head


def test_a_file_may_become_a_directory_and_a_directory_a_file(site: Site) -> None:
    site.commit({"p/file": b"f", "p/folder/x": b"x", "p/folder/y": b"y"})

    def body(workspace: Path) -> None:
        (workspace / "file").unlink()
        writing("file/inside")(workspace)
        for name in ("x", "y"):
            (workspace / "folder" / name).unlink()
        (workspace / "folder").rmdir()
        (workspace / "folder").write_bytes(b"flat")

    site.publish(body, spec=PART)

    assert site.tree() == {"p/file/inside": b"new", "p/folder": b"flat"}


def test_hard_links_are_files_of_their_own(site: Site, tmp_path: Path) -> None:
    site.commit({"p/a": b"a"})
    (tmp_path / "outside").write_bytes(b"o")

    def body(workspace: Path) -> None:
        (workspace / "again").hardlink_to(workspace / "a")
        (workspace / "theirs").hardlink_to(tmp_path / "outside")

    site.publish(body, spec=PART)

    assert site.tree() == {"p/a": b"a", "p/again": b"a", "p/theirs": b"o"}
    assert (tmp_path / "outside").read_bytes() == b"o"


def test_a_file_its_body_locked_is_published_or_named(site: Site) -> None:
    head, readable = site.commit({"p/a": b"a"}), list[bool]()

    def body(workspace: Path) -> None:
        writing("locked")(workspace)
        (workspace / "locked").chmod(0)
        readable.append(os.access(workspace / "locked", os.R_OK))

    outcome = site.run(task_of(body, PART))

    if readable == [True]:  # as root usually can
        assert isinstance(outcome, Completed), outcome
        assert site.tree() == {"p/a": b"a", "p/locked": b"new"}
    else:
        assert "file 'locked' cannot be read" in failed(outcome).failure.reason
        assert site.head() == head
    assert site.leftovers() == []


def test_locked_directories_do_not_survive_the_attempt(site: Site) -> None:
    head = site.commit({"p/a": b"a"})

    def body(workspace: Path) -> None:
        (workspace / "outer" / "inner").mkdir(parents=True)
        (workspace / "outer" / "inner").chmod(0o500)
        (workspace / "outer").chmod(0o500)

    assert site.publish(body, spec=PART) == head
    assert site.leftovers() == []


def test_a_body_that_works_from_inside_its_workspace_harms_nobody(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site.commit({"p/a": b"a"})

    def body(workspace: Path) -> None:
        assert Path.cwd() == tmp_path
        os.chdir(workspace)
        Path("here").write_bytes(b"h")

    site.publish(body, spec=PART)

    assert site.tree() == {"p/a": b"a", "p/here": b"h"}
    assert site.leftovers() == []


PARTS = st.one_of(
    st.sampled_from(["", ".", "..", "a", "b", "a b", "%2F", MARKER_NAME, "é", "e\u0301"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6),
)
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join).filter(bool)
NUMBERS = count()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(paths=st.lists(PATHS, min_size=1, max_size=3, unique=True))
def test_any_paths_round_trip_or_are_refused_by_name(site: Site, paths: list[str]) -> None:
    prefix = f"h{next(NUMBERS)}"
    there = {f"{prefix}/{path}": path.encode() for path in paths}
    site.commit(there)
    before = surroundings(site)

    outcome = site.run(task_of(writing("touched"), WorkspaceSpec(prefix=prefix)))

    if isinstance(outcome, Completed):
        assert site.tree(prefix=f"{prefix}/") == {**there, f"{prefix}/touched": b"new"}
    else:
        assert any(f"object {path!r} cannot be a file" in outcome.failure.reason for path in there), outcome.failure
        assert site.tree(prefix=f"{prefix}/") == there
    assert surroundings(site) == before
    assert site.leftovers() == []
