"""No name of a prefix, a guardrail, an object or a branch may reach outside the place it belongs to."""

import os.path
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from perago import (
    TaskDefinitionError,
    TaskExecutionError,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
    require_table,
    staging_branch_name,
)
from perago.authoring.paths import MARKER_NAME, checked_relative, normalised_prefix
from perago.protocol.attempt import Attempt
from perago.protocol.names import branch_segment
from perago.protocol.paths import listing_prefix, object_path, workspace_file

checked = settings(max_examples=100, deadline=None)

ROOT = "/workspaces/attempt"
# Any code point at all, lone surrogates too.
ANYTHING = st.text(st.characters(), max_size=12)
HOSTILE = st.sampled_from(
    [
        "",
        ".",
        "..",
        "...",
        " ",
        "~",
        "C:",
        "\\",
        "..\\..",
        "\0",
        "\n",
        "\x7f",
        "\ud800",
        MARKER_NAME,
        "x" * 256,
        "é" * 128,
    ]
)
PLAIN = st.sampled_from(["a", "b", "bc", "a b", "é", "..a", "day=1", "x" * 255])
HOSTILE_PATHS = (
    st.lists(HOSTILE | PLAIN | ANYTHING, max_size=6).map("/".join)
    | ANYTHING
    | st.integers(1, 2100).map(lambda depth: "/".join(["ab"] * depth))
)
PREFIXES = st.just("") | st.lists(PLAIN, min_size=1, max_size=3).map("/".join)


def escapes(path: str) -> bool:
    """Whether a path taken from ROOT would be anywhere but strictly below it."""
    taken = os.path.normpath(Path(ROOT, path))
    return not taken.startswith(f"{ROOT}/") or taken != f"{ROOT}/{path}"


@checked
@given(HOSTILE_PATHS)
@example("/ ")
@example("/C:/x")
@example("//")
@example("/../x")
def test_a_prefix_is_refused_or_a_stable_path_inside(written: str) -> None:
    try:
        kept = normalised_prefix(written)
    except ValueError:
        return

    assert kept == "" or not escapes(kept)
    assert normalised_prefix(f"/{kept}") == kept
    assert kept == "" or normalised_prefix(kept) == kept


@checked
@given(HOSTILE_PATHS)
def test_a_relative_path_is_refused_or_kept_as_written_and_inside(written: str) -> None:
    try:
        kept = checked_relative(written, "path")
    except ValueError:
        return

    assert kept == written
    assert not escapes(kept)


@pytest.mark.parametrize("declare", [require_file, require_dir, require_glob, forbid_glob, require_table])
@checked
@given(HOSTILE_PATHS)
def test_a_guardrail_is_refused_or_stays_inside(declare: Any, written: str) -> None:
    try:
        declare(written)
    except TaskDefinitionError:
        return

    assert not escapes(written)


@checked
@given(PREFIXES, HOSTILE_PATHS)
@example("", "..")
@example("a", "a/../../etc/passwd")
@example("a", "a//etc/passwd")
@example("a", "a/")
@example("", "/etc/passwd")
@example("a", f"a/{MARKER_NAME}/x")
def test_an_object_is_a_file_inside_or_none_or_refused(prefix: str, path: str) -> None:
    try:
        file = workspace_file(prefix, path)
    except TaskExecutionError:
        return

    if file is not None:
        assert not escapes(file)
        assert MARKER_NAME not in file.split("/")
        assert object_path(prefix, file) == path
        os.fsencode(file)  # a name the file system takes
        assert all(len(os.fsencode(part)) <= 255 for part in file.split("/"))


@checked
@given(PREFIXES, HOSTILE_PATHS)
def test_an_object_under_the_prefix_is_inside_or_none_or_refused(prefix: str, inner: str) -> None:
    path = listing_prefix(prefix) + inner
    try:
        file = workspace_file(prefix, path)
    except TaskExecutionError:
        return

    assert file is None or (file == inner and not escapes(file))


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        pytest.param("p/..", "its path has a '.' or '..' part", id="up"),
        pytest.param("p/a/../../x", "its path has a '.' or '..' part", id="up within"),
        pytest.param("p/./a", "its path has a '.' or '..' part", id="dot"),
        pytest.param("p//a", "its path has an empty part", id="double slash"),
        pytest.param("p/a/", "its path has an empty part", id="trailing slash"),
        pytest.param("p/", "its path has an empty part", id="the prefix itself"),
        pytest.param("p/a\0b", "its path holds a NUL character", id="NUL"),
        pytest.param("p/\ud800", "its path is not valid Unicode text", id="surrogate"),
        pytest.param("p/" + "x" * 256, "its path is too long", id="long name"),
        pytest.param("p/" + "é" * 128, "its path is too long", id="long name in bytes"),
        pytest.param("p/" + "x/" * 2048 + "x", "its path is too long", id="long path"),
    ],
)
def test_an_object_no_file_can_bear_is_refused_by_name(path: str, problem: str) -> None:
    with pytest.raises(TaskExecutionError) as refused:
        workspace_file("p", path)

    assert str(refused.value).startswith(f"object {path!r} cannot be a file of the workspace: {problem}")


FILES = st.lists(PLAIN | ANYTHING, min_size=1, max_size=4).map("/".join)


def mappable(file: str) -> bool:
    try:
        return workspace_file("", file) == file
    except TaskExecutionError:
        return False


@checked
@given(PREFIXES, FILES.filter(mappable))
def test_a_file_and_its_object_name_each_other(prefix: str, file: str) -> None:
    assert workspace_file(prefix, object_path(prefix, file)) == file


@checked
@given(PREFIXES, FILES.filter(mappable), FILES.filter(mappable))
def test_distinct_files_are_distinct_objects(prefix: str, one: str, other: str) -> None:
    assert (object_path(prefix, one) == object_path(prefix, other)) == (one == other)


@checked
@given(st.lists(PLAIN, min_size=1, max_size=3).map("/".join), ANYTHING.filter(lambda text: text[:1] != "/"), FILES)
@example("a/b", "c", "raw/in.wav")
def test_a_prefix_never_takes_a_longer_name_for_its_own(prefix: str, more: str, file: str) -> None:
    assume(more != "")

    assert workspace_file(prefix, f"{prefix}{more}") is None
    assert workspace_file(prefix, f"{prefix}{more}/{file}") is None
    assert not f"{prefix}{more}/{file}".startswith(listing_prefix(prefix))


@checked
@given(PREFIXES, FILES)
def test_the_marker_is_never_a_file_of_the_workspace(prefix: str, file: str) -> None:
    for marker in (MARKER_NAME, f"{file}/{MARKER_NAME}", f"{MARKER_NAME}/{file}"):
        assert workspace_file(prefix, object_path(prefix, marker)) is None


IDS = st.text(st.sampled_from("ab-_ :/.é"), max_size=8) | ANYTHING | st.text("ab/", min_size=60, max_size=70)


def attempt(workflow: str, reference: str, task_id: str, seq: int = 1, iteration: int = 0, retry: int = 0) -> Attempt:
    return Attempt(workflow, task_id, retry, reference, seq, iteration, "IN_PROGRESS")


def lakefs_safe(name: str) -> bool:
    return re.fullmatch(r"\w[-\w]*", name, re.ASCII) is not None


@checked
@given(IDS, IDS)
@example("a b", "a-b")
@example("a b", "a:b")
@example("", "-")
@example("x" * 64, "x" * 65)
@example("x" * 65, "x" * 66)
def test_distinct_texts_are_distinct_segments(one: str, other: str) -> None:
    assert (branch_segment(one) == branch_segment(other)) == (one == other)


@checked
@given(IDS)
@example("")
@example("x" * 65)
def test_a_segment_is_short_and_safe_and_never_empty(text: str) -> None:
    segment = branch_segment(text)

    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", segment)


@pytest.mark.parametrize("text", ["build_ref", "8f14e45f-ceea-467f-a8f5-5f0b8e0f7c11", "x" * 64, "-", "a--b"])
def test_a_text_already_safe_stays_readable(text: str) -> None:
    assert branch_segment(text) == text


@checked
@given(IDS, IDS, IDS, st.integers(0, 99), st.integers(0, 99), st.integers(0, 10), st.uuids())
def test_a_staging_branch_is_a_name_lakefs_takes(
    workflow: str, reference: str, task_id: str, seq: int, iteration: int, retry: int, execution: UUID
) -> None:
    name = staging_branch_name(attempt(workflow, reference, task_id, seq, iteration, retry), execution.hex)

    assert lakefs_safe(name)
    assert name.startswith("perago-staging-")
    assert name.endswith(f"-retry-{retry}-exec-{execution.hex}")


@checked
@given(st.tuples(IDS, IDS, IDS), st.tuples(IDS, IDS, IDS), st.uuids(), st.uuids())
def test_two_executions_never_share_a_staging_branch(
    one: tuple[str, str, str], other: tuple[str, str, str], first: UUID, second: UUID
) -> None:
    assume(first != second)

    assert staging_branch_name(attempt(*one), first.hex) != staging_branch_name(attempt(*other), second.hex)
    assert staging_branch_name(attempt(*one), first.hex) != staging_branch_name(attempt(*one), second.hex)


def test_a_staging_branch_names_its_attempt_as_the_contract_says() -> None:
    name = staging_branch_name(attempt("wf-1", "build_ref", "t-1", seq=2, iteration=3, retry=4), "c0ffee")

    assert name == "perago-staging-wf-1-build_ref-seq-2-iteration-3-task-id-t-1-retry-4-exec-c0ffee"
