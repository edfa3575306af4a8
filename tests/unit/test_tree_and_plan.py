"""A directory against what was downloaded: the order of its files, what is planned, and what is sent."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perago import TaskExecutionError
from perago.authoring.paths import MARKER_NAME
from perago.authoring.workspace import WorkspaceInput
from perago.data.manifest import Manifest, ManifestEntry, ManifestWriter
from perago.data.plan import Plan, plan_changes
from perago.data.transfer import Content
from perago.data.tree import LocalFile, Signature, walk
from perago.data.workspace import DirectoryFiles
from perago.lake.objects import RemoteObject, Sink

Meddle = Callable[[Path], object]

FAR_FUTURE = 2**62
SOURCE = WorkspaceInput(repository="repo", branch="main", ref_type="commit", ref="c0ffee")
STORED = {"p/a.txt": b"one", "p/dir/b.txt": b"two", "p/empty": b"", "px/other": b"not ours", "other": b"not ours"}
DOWNLOADED = {"a.txt": b"one", "dir/b.txt": b"two", "empty": b""}


class InMemoryStore:
    """Objects of the only commit, and what is sent to the only branch."""

    def __init__(self, objects: Mapping[str, bytes] = STORED) -> None:
        self.objects = dict(objects)
        self.sent: dict[str, bytes] = {}
        self.deleted: list[str] = []

    def list(self, repository: str, ref: str, prefix: str) -> Iterable[RemoteObject]:
        found = sorted((path for path in self.objects if path.startswith(prefix)), key=str.encode)
        return [RemoteObject(path, len(self.objects[path])) for path in found]

    def fetch(self, repository: str, ref: str, wanted: RemoteObject, sink: Sink) -> int:
        sink.restart()
        sink.write(self.objects[wanted.path])
        return len(self.objects[wanted.path])

    def store(self, repository: str, branch: str, path: str, content: Content, size: int) -> None:
        with content() as file:
            self.sent[path] = self.read(file)

    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None:
        self.deleted.extend(paths)

    def read(self, file: BinaryIO) -> bytes:
        return file.read()


class Workplace:
    """A directory filled from a store, as a body finds it."""

    def __init__(self, scratch: Path, store: InMemoryStore | None = None, prefix: str = "p") -> None:
        self.store = store or InMemoryStore()
        self.files = DirectoryFiles(self.store)
        self.prefix = prefix
        self.directory = scratch / "workspace"
        self.directory.mkdir()
        self.manifest = self.files.download(SOURCE, prefix, self.directory, scratch)

    def plan(self) -> Plan:
        return plan_changes(self.manifest, self.directory)

    def apply(self, plan: Plan) -> None:
        self.files.apply(plan, "repo", "staging", self.prefix, self.directory)


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def overwrite(file: Path) -> None:
    file.write_bytes(b"later")


def told(plan: Plan) -> tuple[list[str], list[str]]:
    found = [file.path for file in plan.puts()], list(plan.deletes())
    assert plan.added + plan.changed == len(found[0])
    assert plan.deleted == len(found[1])
    plan.close()
    return found


NAMES = st.text(st.sampled_from("a.-0_/~é𐀀\uffff"), min_size=1, max_size=5) | st.sampled_from(["a", "a.b", "a-b", "a0"])
PATHS = st.lists(NAMES.filter(lambda name: "/" not in name and name not in (".", "..")), min_size=1, max_size=3)


@settings(deadline=None, max_examples=60)
@given(st.lists(PATHS.map("/".join), max_size=12))
@example(["a/b", "a.b", "a-b", "a0", "a!/c", "ab"])
@example(["é", "z", "\uffff", "𐀀"])
def test_files_come_in_the_order_of_their_paths_bytes(paths: list[str]) -> None:
    with TemporaryDirectory() as made:
        root = Path(made)
        for path in paths:
            if not any(above.is_file() for above in (root / path).parents) and not (root / path).exists():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).touch()

        walked = [file.path for file in walk(root)]

        there = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
        assert walked == sorted(there, key=str.encode)


def test_what_is_downloaded_is_what_lies_below_the_prefix(place: Workplace) -> None:
    found = {path: place.directory / path for path in DOWNLOADED}

    assert [file.path for file in walk(place.directory)] == sorted(DOWNLOADED)
    assert {path: file.read_bytes() for path, file in found.items()} == DOWNLOADED
    assert place.manifest.objects == len(DOWNLOADED)


def test_the_marker_is_neither_downloaded_nor_published(tmp_path: Path) -> None:
    place = Workplace(tmp_path, InMemoryStore({"p/a": b"", f"p/{MARKER_NAME}": b"m", f"p/dir/{MARKER_NAME}/x": b"m"}))
    assert list(place.directory.iterdir()) == [place.directory / "a"]

    (place.directory / MARKER_NAME).write_bytes(b"mine")
    (place.directory / "dir" / MARKER_NAME).mkdir(parents=True)
    (place.directory / "dir" / MARKER_NAME / "x").write_bytes(b"mine")

    assert told(place.plan()) == ([], [])


def test_an_object_that_comes_shorter_than_listed_is_refused(tmp_path: Path) -> None:
    class Truncating(InMemoryStore):
        def fetch(self, repository: str, ref: str, wanted: RemoteObject, sink: Sink) -> int:
            sink.restart()
            sink.write(self.objects[wanted.path][:-1])
            return max(len(self.objects[wanted.path]) - 1, 0)

    with pytest.raises(TaskExecutionError, match=r"'p/a.txt' came with 2 bytes, but lakeFS lists 3"):
        Workplace(tmp_path, Truncating())

    assert not (tmp_path / "workspace" / "a.txt").exists()


def test_a_directory_left_alone_needs_nothing(place: Workplace) -> None:
    plan = place.plan()

    assert plan.is_empty
    assert told(plan) == ([], [])


def test_added_changed_and_deleted_files_are_planned(place: Workplace) -> None:
    (place.directory / "z").write_bytes(b"new")
    (place.directory / "a.txt").write_bytes(b"eno")
    (place.directory / "dir" / "a").write_bytes(b"new")
    (place.directory / "empty").unlink()

    plan = place.plan()

    assert (plan.added, plan.changed, plan.deleted, plan.bytes) == (2, 1, 1, 9)
    assert sorted(told(plan)[0]) == ["a.txt", "dir/a", "z"]


def test_a_file_written_anew_with_the_same_content_is_not_changed(place: Workplace) -> None:
    (place.directory / "a.txt").unlink()
    (place.directory / "a.txt").write_bytes(b"one")
    os.utime(place.directory / "dir" / "b.txt")

    assert told(place.plan()) == ([], [])


def test_a_file_that_became_a_directory_is_a_deletion_and_an_addition(place: Workplace) -> None:
    (place.directory / "a.txt").unlink()
    (place.directory / "a.txt").mkdir()
    (place.directory / "a.txt" / "in").write_bytes(b"x")

    assert told(place.plan()) == (["a.txt/in"], ["a.txt"])


def test_a_changed_signature_is_enough_though_the_clock_was_set_back(place: Workplace) -> None:
    """Every file looks older than the download then."""
    (place.directory / "a.txt").write_bytes(b"eno")

    plan = plan_changes(replace(place.manifest, sealed_ns=FAR_FUTURE), place.directory)

    assert told(plan) == (["a.txt"], [])


@pytest.mark.parametrize("after_seal_ns", [0, 1])
def test_a_change_within_the_clock_tick_of_the_download_is_found(tmp_path: Path, after_seal_ns: int) -> None:
    """Such a change leaves the signature as it was: only its time shows that it may have happened."""
    (tmp_path / "workspace").mkdir()
    file = tmp_path / "workspace" / "same"
    file.write_bytes(b"new")
    signature = Signature.of(file.stat())
    manifest = written(tmp_path, ManifestEntry("same", "digest of what was there before", signature))

    found = told(plan_changes(replace(manifest, sealed_ns=signature.ctime_ns - after_seal_ns), tmp_path / "workspace"))
    unread = told(plan_changes(replace(manifest, sealed_ns=signature.ctime_ns + 1), tmp_path / "workspace"))

    assert found == (["same"], [])
    assert unread == ([], [])


def written(scratch: Path, *entries: ManifestEntry) -> Manifest:
    with ManifestWriter(scratch / "manifest.jsonl") as writer:
        for entry in entries:
            writer.add(entry)
        return writer.seal()


@pytest.mark.parametrize("content", [b"", b"[]\n", b"not json\n", b'["a.txt","",0,0,0,0]\n'])
def test_a_manifest_altered_by_the_body_is_found_out(place: Workplace, content: bytes) -> None:
    place.manifest.file.chmod(0o600)
    place.manifest.file.write_bytes(content)

    with pytest.raises(TaskExecutionError, match=r"manifest\.jsonl was altered"):
        place.plan()


def test_no_entry_of_an_altered_manifest_is_believed(place: Workplace) -> None:
    place.manifest.file.chmod(0o600)
    with place.manifest.file.open("ab") as file:
        file.write(b'["z","",0,0,0,0]\n')

    with pytest.raises(TaskExecutionError, match=r"manifest\.jsonl was altered"):
        next(place.manifest.entries())


def test_a_manifest_altered_while_it_is_read_is_found_out(place: Workplace) -> None:
    entries = place.manifest.entries()
    assert next(entries).path == "a.txt"
    place.manifest.file.chmod(0o600)
    with place.manifest.file.open("ab") as file:
        file.write(b'["z","",0,0,0,0]\n')

    with pytest.raises(TaskExecutionError, match=r"manifest\.jsonl was altered"):
        list(entries)


def test_a_manifest_removed_by_the_body_is_found_out(place: Workplace) -> None:
    place.manifest.file.unlink()

    with pytest.raises(TaskExecutionError, match=r"manifest\.jsonl was altered or removed"):
        place.plan()


def test_links_pipes_and_foreign_names_are_refused_by_name(place: Workplace) -> None:
    def refused() -> str:
        with pytest.raises(TaskExecutionError) as error:
            place.plan()
        return str(error.value)

    made = place.directory / "dir" / "made"
    made.symlink_to("b.txt")
    assert refused() == "workspace publication does not support symlinks: dir/made"
    made.unlink()
    os.mkfifo(made)
    assert refused() == "workspace publication does not support pipes, sockets or devices: dir/made"
    made.unlink()
    Path(os.fsdecode(os.fsencode(place.directory) + b"/\xff")).touch()
    assert refused() == r"workspace publication does not support file names that are not UTF-8: \xff"


def test_a_plan_sends_what_changed_and_deletes_what_is_gone(place: Workplace) -> None:
    (place.directory / "a.txt").write_bytes(b"changed")
    (place.directory / "new").write_bytes(b"new")
    (place.directory / "dir" / "b.txt").unlink()

    plan = place.plan()
    place.apply(plan)
    plan.close()

    assert place.store.sent == {"p/a.txt": b"changed", "p/new": b"new"}
    assert place.store.deleted == ["p/dir/b.txt"]


@pytest.mark.parametrize("meddle", [overwrite, Path.unlink])
def test_nothing_is_sent_of_a_file_that_changed_after_the_plan(place: Workplace, meddle: Meddle) -> None:
    (place.directory / "a.txt").write_bytes(b"first")
    plan = place.plan()
    meddle(place.directory / "a.txt")

    with pytest.raises(TaskExecutionError, match=r"file 'a.txt' was changed while"):
        place.apply(plan)

    plan.close()
    assert place.store.sent == {}


@pytest.mark.parametrize("meddle", [overwrite, Path.unlink])
def test_a_file_that_changes_while_it_is_sent_is_an_error(tmp_path: Path, meddle: Meddle) -> None:
    class Meddling(InMemoryStore):
        def read(self, file: BinaryIO) -> bytes:
            content = super().read(file)
            meddle(tmp_path / "workspace" / "a.txt")
            return content

    place = Workplace(tmp_path, Meddling())
    (place.directory / "a.txt").write_bytes(b"first")
    plan = place.plan()

    with pytest.raises(TaskExecutionError, match=r"file 'a.txt' was changed while"):
        place.apply(plan)

    plan.close()


def test_a_planned_file_is_read_back_as_it_was_written() -> None:
    plan = Plan()
    files = [LocalFile("a\nb", Signature(1, 2, 3, 4)), LocalFile('é"', Signature(5, 6, 7, 8))]
    for file in files:
        plan.put(file, new=True)

    assert list(plan.puts()) == files
    assert list(plan.puts()) == files
    plan.close()
