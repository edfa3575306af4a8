import os
from pathlib import Path
from typing import Any

import pytest

from perago import (
    PostGuardrailViolation,
    PreGuardrailViolation,
    TaskDefinitionError,
    TaskExecutionError,
    change_budget,
    check_guardrails,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
    require_table,
)
from perago.authoring.guardrails import Guardrail, matching

MARKER = ".perago-attempt.json"
INSIDE = "it stays inside the workspace"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    filled(root, "raw/a.csv", "raw/b.csv", "raw/deep/c.csv", "raw/deep/er/d.csv", "notes.txt", MARKER)
    (root / "empty").mkdir()
    return root


def filled(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(file)


def violation(workspace: Path, guardrail: Guardrail) -> str:
    with pytest.raises(PostGuardrailViolation) as found:
        check_guardrails(workspace, [guardrail], "post")
    return str(found.value)


@pytest.mark.parametrize(
    "guardrail",
    [
        require_file("notes.txt"),
        require_file("raw/deep/c.csv"),
        require_dir("raw"),
        require_dir("raw/deep/er"),
        require_dir("empty"),
        require_glob("raw/*.csv"),
        require_glob("raw/*.csv", min_count=2, max_count=2),
        require_glob("**/*.csv", min_count=4, max_count=4),
        require_glob("none/*", min_count=0),
        require_glob("raw/?.csv", 2, 2),
        require_glob("raw/[ab].csv", 2, 2),
        require_glob("notes.txt", max_count=1),
        forbid_glob("**/*.tmp"),
        forbid_glob("*.csv"),
    ],
    ids=str,
)
def test_a_guardrail_that_holds_is_silent(workspace: Path, guardrail: Guardrail) -> None:
    check_guardrails(workspace, [guardrail], "pre")


@pytest.mark.parametrize(
    ("guardrail", "message"),
    [
        (require_file("out.parquet"), "require_file('out.parquet') failed: no such file"),
        (require_file("notes.txt/x"), "require_file('notes.txt/x') failed: no such file"),
        (require_file("raw"), "require_file('raw') failed: it is a directory, not a file"),
        (require_dir("out"), "require_dir('out') failed: no such directory"),
        (require_dir("notes.txt"), "require_dir('notes.txt') failed: it is a file, not a directory"),
        (require_glob("raw/*.json"), "require_glob('raw/*.json') failed: found 0 files, at least 1 needed"),
        (
            require_glob("raw/*.csv", min_count=3),
            "require_glob('raw/*.csv', min_count=3) failed: found 2 files (raw/a.csv, raw/b.csv), at least 3 needed",
        ),
        (
            require_glob("raw/*.csv", max_count=1),
            "require_glob('raw/*.csv', max_count=1) failed: found 2 files (raw/a.csv, raw/b.csv), at most 1 allowed",
        ),
        (
            require_glob("*.txt", 0, 0),
            "require_glob('*.txt', min_count=0, max_count=0) failed: found 1 file (notes.txt), at most 0 allowed",
        ),
        (forbid_glob("*.txt"), "forbid_glob('*.txt') failed: found 1 file (notes.txt), none allowed"),
        (
            forbid_glob("**/*.csv"),
            "forbid_glob('**/*.csv') failed: found 4 files (raw/a.csv, raw/b.csv, raw/deep/c.csv, …), none allowed",
        ),
    ],
    ids=str,
)
def test_a_broken_guardrail_says_the_phase_the_rule_and_what_was_found(
    workspace: Path, guardrail: Guardrail, message: str
) -> None:
    with pytest.raises(PreGuardrailViolation) as before:
        check_guardrails(workspace, [guardrail], "pre")
    with pytest.raises(PostGuardrailViolation) as after:
        check_guardrails(workspace, [guardrail], "post")

    assert str(before.value) == f"pre guardrail {message}"
    assert str(after.value) == f"post guardrail {message}"


def test_a_special_file_is_neither_file_nor_directory(workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")

    assert "it is a special file, not a file" in violation(workspace, require_file("pipe"))
    assert "it is a special file, not a directory" in violation(workspace, require_dir("pipe"))
    check_guardrails(workspace, [forbid_glob("pipe")], "post")


def test_guardrails_are_checked_in_order_and_the_first_failure_wins(workspace: Path) -> None:
    with pytest.raises(PreGuardrailViolation, match="second"):
        check_guardrails(workspace, [require_dir("raw"), require_file("second"), require_file("third")], "pre")


def test_no_guardrails_hold_of_anything(tmp_path: Path) -> None:
    check_guardrails(tmp_path, [], "pre")


FILES = ["a.csv", "raw/a.csv", "raw/deep/b.csv", "raw/deep/er/c.csv", ".hidden", "raw/[x].csv", "A.CSV"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.csv", ["a.csv"]),
        ("*", ["a.csv", ".hidden", "A.CSV"]),
        ("raw/*.csv", ["raw/a.csv", "raw/[x].csv"]),
        ("*/*/*.csv", ["raw/deep/b.csv"]),
        ("raw*", []),
        ("raw", []),
        ("**", FILES),
        ("**/*.csv", ["a.csv", "raw/a.csv", "raw/deep/b.csv", "raw/deep/er/c.csv", "raw/[x].csv"]),
        ("raw/**", ["raw/a.csv", "raw/deep/b.csv", "raw/deep/er/c.csv", "raw/[x].csv"]),
        ("raw/**/*.csv", ["raw/a.csv", "raw/deep/b.csv", "raw/deep/er/c.csv", "raw/[x].csv"]),
        ("raw/**/er/*", ["raw/deep/er/c.csv"]),
        ("**/deep/**", ["raw/deep/b.csv", "raw/deep/er/c.csv"]),
        ("**/**/c.csv", ["raw/deep/er/c.csv"]),
        ("a.csv/**", []),
        ("raw/**.csv", ["raw/a.csv", "raw/[x].csv"]),
        ("raw/[[]x].csv", ["raw/[x].csv"]),
        ("?.csv", ["a.csv"]),
    ],
)
def test_a_star_stays_in_a_directory_and_two_cross_them(pattern: str, found: list[str]) -> None:
    assert matching(pattern, FILES) == found


def test_many_double_stars_are_matched_without_a_blow_up() -> None:
    assert matching("/".join(["**", "a"] * 30 + ["b"]), ["/".join("a" * 200)]) == []


def test_a_tree_deeper_than_python_s_stack_is_walked(tmp_path: Path) -> None:
    levels = [f"{tmp_path}{'/a' * depth}" for depth in range(1, 1101)]
    for level in levels:
        Path(level).mkdir()
    end = Path(levels[-1], "end.csv")
    end.touch()
    try:
        check_guardrails(tmp_path, [require_glob("**/end.csv", 1, 1)], "post")
    finally:
        end.unlink()
        for level in reversed(levels):  # what pytest cleans up with is not as deep
            Path(level).rmdir()


@pytest.mark.parametrize(
    ("name", "pattern", "matches"),
    [
        ("Größe.csv", "Gr??e.csv", True),
        ("größe.CSV", "größe.csv", False),
        ("e\u0301.csv", "é.csv", False),
        (".hidden.csv", "*.csv", True),
        (".hidden/a.csv", "**/*.csv", True),
        ("a b/c&d.csv", "a b/*.csv", True),
        ("数据/一.csv", "数据/?.csv", True),
    ],
)
def test_names_are_matched_letter_by_letter_and_hidden_ones_too(
    tmp_path: Path, name: str, pattern: str, matches: bool
) -> None:
    filled(tmp_path, name)

    check_guardrails(tmp_path, [require_glob(pattern, int(matches), int(matches))], "post")


def test_globs_count_files_and_never_directories(workspace: Path) -> None:
    check_guardrails(workspace, [forbid_glob("empty"), forbid_glob("raw"), forbid_glob("empty/**")], "post")


def test_the_marker_file_is_invisible_at_every_depth(tmp_path: Path) -> None:
    filled(tmp_path, MARKER, f"sub/{MARKER}")

    check_guardrails(tmp_path, [forbid_glob("**"), forbid_glob("*"), forbid_glob(".*"), forbid_glob("**/*")], "post")


def test_the_marker_file_cannot_be_asked_for() -> None:
    for declare in (require_file, require_dir, require_glob, forbid_glob, require_table):
        with pytest.raises(TaskDefinitionError, match="names Perago's own marker file"):
            declare(f"sub/{MARKER}")


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    root, outside = tmp_path / "workspace", tmp_path / "outside"
    filled(outside, "secret.txt", "deep/secret.txt")
    root.mkdir()
    (root / "file").symlink_to(outside / "secret.txt")
    (root / "directory").symlink_to(outside, target_is_directory=True)
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    (root / "loop").symlink_to(root, target_is_directory=True)
    return root


def test_symbolic_links_are_never_counted_nor_walked(linked: Path) -> None:
    check_guardrails(linked, [forbid_glob("**"), forbid_glob("*"), forbid_glob("directory/**")], "post")


@pytest.mark.parametrize("link", ["file", "directory", "dangling", "loop"])
def test_a_symbolic_link_is_neither_file_nor_directory(linked: Path, link: str) -> None:
    assert violation(linked, require_file(link)).endswith("failed: it is a symlink, not a file")
    assert violation(linked, require_dir(link)).endswith("failed: it is a symlink, not a directory")


@pytest.mark.parametrize("path", ["directory/secret.txt", "directory/deep/secret.txt", "loop/file", "file/x"])
def test_nothing_is_found_through_a_symbolic_link(linked: Path, path: str) -> None:
    assert violation(linked, require_file(path)).endswith("failed: no such file")


def test_a_directory_is_not_found_through_a_symbolic_link(linked: Path) -> None:
    assert violation(linked, require_dir("directory/deep")).endswith("failed: no such directory")


def test_a_workspace_reached_by_a_symbolic_link_is_checked_like_any(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(workspace, target_is_directory=True)

    check_guardrails(tmp_path / "link", [require_file("notes.txt"), require_glob("raw/*.csv", 2, 2)], "pre")


@pytest.mark.parametrize("guardrail", [require_table("raw"), change_budget(max_changed_objects=1)], ids=str)
def test_a_rule_on_contents_is_never_passed_by_file_names(workspace: Path, guardrail: Guardrail) -> None:
    with pytest.raises(TaskExecutionError) as refused:
        check_guardrails(workspace, [guardrail], "post")

    assert str(refused.value) == f"{guardrail} is checked on Spark, not on the files of a directory"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        pytest.param("", "must not be blank", id="empty"),
        pytest.param(" \t", "must not be blank", id="blank"),
        pytest.param("/raw/a", "'/raw/a' must be relative: write 'raw/a'", id="absolute"),
        pytest.param("/", "'/' must be relative: name what is inside", id="root"),
        pytest.param("..", f"'..' must not hold '..': {INSIDE}", id="up"),
        pytest.param("raw/../../x", f"'raw/../../x' must not hold '..': {INSIDE}", id="up within"),
        pytest.param("./raw", f"'./raw' must not hold '.': {INSIDE}", id="dot"),
        pytest.param("raw//a", "'raw//a' has an empty part: no double or trailing '/'", id="double slash"),
        pytest.param("raw/", "'raw/' has an empty part: no double or trailing '/'", id="trailing slash"),
        pytest.param("raw\\a", "'raw\\\\a' must use '/', not a backslash", id="backslash"),
        pytest.param("raw\na", "'raw\\na' must not hold control characters", id="line break"),
        pytest.param("raw\0", "'raw\\x00' must not hold control characters", id="NUL"),
        pytest.param("raw\x7f", "'raw\\x7f' must not hold control characters", id="delete"),
        pytest.param("C:/raw", "'C:/raw' must not start with a drive letter", id="drive"),
        pytest.param("c:raw", "'c:raw' must not start with a drive letter", id="drive of no root"),
        pytest.param(Path("raw"), f"must be a text like 'raw/in.csv', got {Path('raw')!r}", id="a Path"),
        pytest.param(None, "must be a text like 'raw/in.csv', got None", id="nothing"),
        pytest.param("raw\udcff", "'raw\\udcff' must be valid Unicode text", id="surrogate"),
    ],
)
@pytest.mark.parametrize(
    ("declare", "what"),
    [
        pytest.param(require_file, "require_file path", id="require_file"),
        pytest.param(require_dir, "require_dir path", id="require_dir"),
        pytest.param(require_glob, "require_glob pattern", id="require_glob"),
        pytest.param(forbid_glob, "forbid_glob pattern", id="forbid_glob"),
        pytest.param(require_table, "require_table path", id="require_table"),
    ],
)
def test_a_path_that_is_no_plain_path_inside_is_refused(declare: Any, what: str, path: Any, problem: str) -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        declare(path)

    assert str(refusal.value) == f"{what} {problem}"


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        pytest.param(
            lambda: require_glob("*", min_count=-1),
            "require_glob('*'): min_count must be a whole number, 0 or more, got -1",
            id="negative count",
        ),
        pytest.param(
            lambda: require_glob("*", max_count=1.5),  # pyright: ignore[reportArgumentType]
            "require_glob('*'): max_count must be a whole number, 0 or more, got 1.5",
            id="half a file",
        ),
        pytest.param(
            lambda: require_glob("*", min_count=None),  # pyright: ignore[reportArgumentType]
            "require_glob('*'): min_count must be a whole number, 0 or more, got None",
            id="no count",
        ),
        pytest.param(
            lambda: require_glob("*", min_count=3, max_count=2),
            "require_glob('*'): max_count (2) must not be less than min_count (3)",
            id="counts that cross",
        ),
        pytest.param(
            lambda: require_glob("*", max_count=0),
            "require_glob('*'): max_count (0) must not be less than min_count (1)",
            id="none, but at least one",
        ),
        pytest.param(
            lambda: require_table("t", min_rows=-1),
            "require_table('t'): min_rows must be a whole number, 0 or more, got -1",
            id="negative rows",
        ),
        pytest.param(
            lambda: require_table("t", min_rows=2, max_rows=1),
            "require_table('t'): max_rows (1) must not be less than min_rows (2)",
            id="rows that cross",
        ),
        pytest.param(
            lambda: require_table("t", unique="id"),
            "require_table('t'): unique takes a list: write unique=['id']",
            id="a column for columns",
        ),
        pytest.param(
            lambda: require_table("t", unique=5),  # pyright: ignore[reportArgumentType]
            "require_table('t'): unique takes a list: write unique=['…']",
            id="a number for columns",
        ),
        pytest.param(
            lambda: require_table("t", max_rows="9"),  # pyright: ignore[reportArgumentType]
            "require_table('t'): max_rows must be a whole number, 0 or more, got '9'",
            id="a text for rows",
        ),
        pytest.param(
            lambda: require_table("t", columns={"id": 5}),  # pyright: ignore[reportArgumentType]
            "require_table('t'): columns: 5 is no text that names or says something",
            id="a number for a type",
        ),
        pytest.param(
            lambda: change_budget(), "change_budget() limits nothing: give at least one limit", id="a budget of nothing"
        ),
        pytest.param(
            lambda: change_budget(max_deleted_fraction=1.5),
            "change_budget: max_deleted_fraction must lie between 0 and 1, got 1.5",
            id="more than all",
        ),
        pytest.param(
            lambda: change_budget(max_deleted_fraction="0.1"),  # pyright: ignore[reportArgumentType]
            "change_budget: max_deleted_fraction must lie between 0 and 1, got '0.1'",
            id="a text for a fraction",
        ),
        pytest.param(
            lambda: change_budget(max_changed_objects=-1),
            "change_budget: max_changed_objects must be a whole number, 0 or more, got -1",
            id="negative objects",
        ),
        pytest.param(
            lambda: change_budget(rows=(1.5, 0.9)),
            "change_budget: rows must be a band like (0.9, 1.5), got (1.5, 0.9)",
            id="a band that crosses",
        ),
    ],
)
def test_a_rule_that_can_never_hold_is_refused(declare: Any, message: str) -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        declare()

    assert str(refusal.value) == message
