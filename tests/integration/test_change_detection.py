"""What counts as a change, and what becomes of files that change while they are published."""

import json
import os
import resource
import tracemalloc
from collections.abc import Callable, Generator
from hashlib import sha256
from pathlib import Path

import pytest

from perago.attempt.lifecycle import Completed
from perago.authoring.errors import TaskExecutionError
from perago.authoring.paths import MARKER_NAME
from perago.data.manifest import ManifestEntry, ManifestWriter
from perago.data.plan import plan_changes
from perago.data.tree import Signature
from tests.conftest import Servers
from tests.integration.support import Body, Site, WatchedObjects, failed, output_ref, task_of, writing

MIB = 1024 * 1024
FILES = {"features/a": b"aaaa", "features/b": b"bbbb", "features/sub/c": b"cccc"}


@pytest.fixture
def site(servers: Servers, repository: str, tmp_path: Path) -> Generator[Site]:
    made = Site.at(servers, repository, tmp_path / "root")
    with made.http:
        made.commit(FILES)
        yield made


def rewrite_with_its_old_times(workspace: Path) -> None:
    file = workspace / "a"
    before = file.stat()
    file.write_bytes(b"AAAA")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def rewrite_through_a_mapping(workspace: Path) -> None:
    import mmap

    with (workspace / "a").open("r+b") as file, mmap.mmap(file.fileno(), 4) as mapped:
        mapped[0:4] = b"AAAA"


def replace_by_a_file_of_the_same_times(workspace: Path) -> None:
    other, file = workspace / "other", workspace / "a"
    other.write_bytes(b"AAAA")
    before = file.stat()
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)


def delete_and_make_anew(workspace: Path) -> None:
    (workspace / "a").unlink()
    (workspace / "a").write_bytes(b"AAAA")


@pytest.mark.parametrize(
    "change",
    [
        writing("a", b"AAAA"),
        rewrite_with_its_old_times,
        rewrite_through_a_mapping,
        replace_by_a_file_of_the_same_times,
        delete_and_make_anew,
    ],
    ids=["in place", "with its old times", "through a mapping", "by another file", "deleted and made anew"],
)
def test_new_content_of_the_same_size_is_noticed_however_it_came(site: Site, change: Body) -> None:
    objects = WatchedObjects(site.servers)

    output_ref(site.run(task_of(change), objects=objects))

    assert site.tree() == {**FILES, "features/a": b"AAAA"}
    assert objects.stored == ["features/a"]


def touch(workspace: Path) -> None:
    for file in ("a", "b"):
        os.utime(workspace / file, (1, 1))


def change_mode(workspace: Path) -> None:
    (workspace / "a").chmod(0o777)


def rewrite_equal(workspace: Path) -> None:
    (workspace / "a").write_bytes(b"aaaa")


def replace_by_equal(workspace: Path) -> None:
    (workspace / "new").write_bytes(b"aaaa")
    (workspace / "new").replace(workspace / "a")


def change_and_change_back(workspace: Path) -> None:
    (workspace / "a").write_bytes(b"something else")
    (workspace / "a").write_bytes(b"aaaa")


def rename_there_and_back(workspace: Path) -> None:
    (workspace / "sub").rename(workspace / "other")
    (workspace / "other").rename(workspace / "sub")


def read_everything(workspace: Path) -> None:
    assert (workspace / "sub" / "c").read_bytes() == b"cccc"


def make_and_delete(workspace: Path) -> None:
    (workspace / "temporary").write_bytes(b"t")
    (workspace / "temporary").unlink()


@pytest.mark.parametrize(
    "body",
    [
        touch,
        change_mode,
        rewrite_equal,
        replace_by_equal,
        change_and_change_back,
        rename_there_and_back,
        read_everything,
        make_and_delete,
    ],
    ids=["touch", "chmod", "equal", "replaced", "changed back", "renamed back", "read", "temporary"],
)
def test_equal_content_is_no_change(site: Site, body: Body) -> None:
    before = site.history()

    assert site.publish(body) == before[0]
    assert site.history() == before


def test_a_rename_is_a_deletion_and_a_new_file(site: Site) -> None:
    objects = WatchedObjects(site.servers)

    output_ref(site.run(task_of(lambda workspace: move(workspace / "sub", workspace / "moved")), objects=objects))

    assert site.tree() == {"features/a": b"aaaa", "features/b": b"bbbb", "features/moved/c": b"cccc"}
    assert (objects.stored, objects.deleted) == (["features/moved/c"], ["features/sub/c"])


def move(source: Path, target: Path) -> None:
    source.rename(target)


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("sub", "sub2")], ids=["files", "directories"])
def test_swapping_two_of_the_same_size_changes_both(site: Site, one: str, other: str) -> None:
    site.commit({"features/sub2/c": b"2222"})

    def swap(workspace: Path) -> None:
        (workspace / one).rename(workspace / "x")
        (workspace / other).rename(workspace / one)
        (workspace / "x").rename(workspace / other)

    before = site.tree()
    site.publish(swap)

    swapped = {f"features/{one}": f"features/{other}", f"features/{other}": f"features/{one}"}
    ending = "/c" if one == "sub" else ""
    assert site.tree() == {
        **before,
        **{at + ending: before[came_from + ending] for at, came_from in swapped.items()},
    }


def test_everything_may_be_deleted(site: Site) -> None:
    def body(workspace: Path) -> None:
        for file in ("a", "b", "sub/c"):
            (workspace / file).unlink()

    ref = site.publish(body)

    assert site.tree(ref) == {}


@pytest.mark.parametrize(("ticks", "noticed"), [(0, 1), (1, 0)], ids=["in the same tick", "in an earlier tick"])
def test_only_files_of_the_manifests_own_clock_tick_are_read_again(tmp_path: Path, ticks: int, noticed: int) -> None:
    """The signature cannot tell a change within one tick of the clock; the content can."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a").write_bytes(b"changed, with nothing in its signature to show it")
    signature = Signature.of((workspace / "a").stat())
    with ManifestWriter(tmp_path / "manifest.jsonl") as writer:
        writer.add(ManifestEntry("a", sha256(b"as downloaded").hexdigest(), signature))
        sealed = writer.seal()
    manifest = type(sealed)(sealed.file, sealed.digest, signature.ctime_ns + ticks, 1, 1)

    plan = plan_changes(manifest, workspace)

    assert plan.changed == noticed
    plan.close()


def meddling(action: Callable[[Path], object], when: str, seen: list[Path]) -> Callable[[str, str], None]:
    """Does something to the file being uploaded at one moment, as a thread that a body left running could."""

    def meddle(moment: str, path: str) -> None:
        if moment == when:
            action(seen[0] / path.removeprefix("features/"))

    return meddle


def grow(file: Path) -> None:
    with file.open("ab") as opened:
        opened.write(b"more")


def shrink(file: Path) -> None:
    os.truncate(file, 1)


def rewrite(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"X" * 8)


def by_symlink(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


def by_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def by_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.parametrize("action", [grow, shrink, rewrite, Path.unlink, by_symlink, by_pipe, by_directory])
def test_a_file_that_changes_while_it_is_sent_fails_the_attempt_and_never_becomes_an_object(
    site: Site, action: Callable[[Path], object], when: str
) -> None:
    head, seen = site.head(), list[Path]()
    objects = WatchedObjects(site.servers, meddling(action, when, seen))

    def body(workspace: Path) -> None:
        seen.append(workspace)
        (workspace / "sent").write_bytes(b"abcdefgh")

    outcome = failed(site.run(task_of(body), objects=objects))

    assert "file 'sent' was changed while the workspace was being published" in outcome.failure.reason
    assert objects.stored == ["features/sent"]
    assert site.head() == head
    assert site.leftovers() == []


def alter_manifest(text: str) -> Body:
    def body(workspace: Path) -> None:
        manifest = workspace.parent / "manifest.jsonl"
        assert manifest.is_file()
        manifest.chmod(0o600)
        manifest.write_text(text)

    return body


def delete_manifest(workspace: Path) -> None:
    (workspace.parent / "manifest.jsonl").unlink()


def drop_a_line(workspace: Path) -> None:
    lines = (workspace.parent / "manifest.jsonl").read_text().splitlines(keepends=True)
    alter_manifest("".join(lines[1:]))(workspace)


@pytest.mark.parametrize(
    "body",
    [
        delete_manifest,
        drop_a_line,
        alter_manifest(""),
        alter_manifest("not JSON\n"),
        alter_manifest("5\n"),
        alter_manifest(json.dumps([{"a": 1}, "d", 1, 1, 1, 1])),
        alter_manifest(json.dumps(["\ud800", "d", 1, 1, 1, 1])),
        alter_manifest(json.dumps(["../../../x", "d", 1, 1, 1, 1])),
    ],
    ids=["deleted", "a line less", "emptied", "no JSON", "a number", "no path", "no text", "a path outside"],
)
def test_a_manifest_altered_by_the_body_is_found_out(site: Site, body: Body) -> None:
    head = site.head()

    outcome = failed(site.run(task_of(body)))

    assert isinstance(outcome.error, TaskExecutionError)
    assert "manifest.jsonl was altered or removed while the body ran" in outcome.failure.reason
    assert site.head() == head
    assert site.leftovers() == []


def test_a_manifest_altered_while_it_is_read_is_found_out(tmp_path: Path) -> None:
    with ManifestWriter(tmp_path / "manifest.jsonl") as writer:
        for number in range(5000):
            writer.add(ManifestEntry(f"{number:04}", "0" * 64, Signature(1, 1, 1, 1)))
        manifest = writer.seal()
    entries = manifest.entries()
    assert next(entries).path == "0000"

    manifest.file.chmod(0o600)
    manifest.file.write_text(manifest.file.read_text().replace('"4999"', '"4998"'))

    with pytest.raises(TaskExecutionError, match="altered"):
        list(entries)


@pytest.mark.parametrize("forged", [None, "{}", '{"pid": 1}'], ids=["deleted", "emptied", "forged"])
def test_the_attempt_does_not_rest_on_its_marker(site: Site, forged: str | None) -> None:
    def body(workspace: Path) -> None:
        marker = workspace.parent / MARKER_NAME
        marker.unlink() if forged is None else marker.write_text(forged)
        (workspace / "new").write_bytes(b"new")

    site.publish(body)

    assert site.tree() == {**FILES, "features/new": b"new"}
    assert site.leftovers() == []


def test_a_body_that_removes_its_whole_workspace_fails_and_deletes_nothing(site: Site) -> None:
    head, mode = site.head(), 0o750
    site.root.mkdir(mode=mode)
    site.root.chmod(mode)

    def body(workspace: Path) -> None:
        workspace.parent.rename(workspace.parents[1] / "elsewhere")

    failed(site.run(task_of(body)))

    assert site.head() == head
    assert site.root.stat().st_mode & 0o777 == mode
    assert site.directories() == ["elsewhere"]


def test_large_files_are_streamed_in_both_directions(site: Site) -> None:
    block = os.urandom(MIB)
    site.ask("POST", "/branches/main/objects", params={"path": "features/big"}, content=block * 64)
    site.commit({})
    sizes: list[int] = []

    def body(workspace: Path) -> None:
        sizes.append((workspace / "big").stat().st_size)
        with (workspace / "bigger").open("wb") as bigger:
            for _ in range(64):
                bigger.write(block)

    tracemalloc.start()
    try:
        outcome = site.run(task_of(body))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert isinstance(outcome, Completed), outcome
    assert sizes == [64 * MIB]
    assert peak < 24 * MIB
    stored = site.ask("GET", "/refs/main/objects/stat", params={"path": "features/bigger"})
    assert stored["size_bytes"] == 64 * MIB


def test_the_memory_of_a_plan_does_not_grow_with_its_files(tmp_path: Path) -> None:
    folders, each = 100, 200  # half of the files as downloaded but larger, half new, and as many deleted
    workspace = tmp_path / "workspace"
    with ManifestWriter(tmp_path / "manifest.jsonl") as writer:
        for folder in range(folders):
            (workspace / f"{folder:03}").mkdir(parents=True)
            for name in range(each):
                (workspace / f"{folder:03}" / f"{name:03}").touch()
                downloaded = f"{folder + folders // 2:03}/{name:03}"
                writer.add(ManifestEntry(downloaded, "0" * 64, Signature(1, 1, 1, 1)))
        manifest = writer.seal()

    tracemalloc.start()
    try:
        plan = plan_changes(manifest, workspace)
        seen = sum(1 for _ in plan.puts()), sum(1 for _ in plan.deletes())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    half = folders * each // 2
    assert seen == (2 * half, half)
    assert (plan.added, plan.changed, plan.deleted) == (half, half, half)
    assert peak < 2 * MIB, "some list holds all 20,000 files"
    plan.close()


def test_a_download_cut_short_by_a_full_disk_fails_by_name(site: Site) -> None:
    limit = 4 * MIB + 10
    site.ask("POST", "/branches/main/objects", params={"path": "features/big"}, content=b"x" * (limit + 5))
    site.commit({})
    ran: list[Path] = []
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        outcome = failed(site.run(task_of(ran.append)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert "object 'features/big' cannot be a file of the workspace: File too large" in outcome.failure.reason
    assert ran == []
    assert site.leftovers() == []
