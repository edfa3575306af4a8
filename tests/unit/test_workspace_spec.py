from typing import Any

import pytest
from pydantic import ValidationError

from perago import (
    StagedWorkspace,
    WorkspaceInput,
    WorkspaceOutput,
    WorkspaceSpec,
    change_budget,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
    require_table,
)

HANDED_OVER = {"repository": "lake", "branch": "main", "ref_type": "commit", "ref": "c0ffee"}
INSIDE = "it stays inside the workspace"
EMPTY_PART = "has an empty part: no double or trailing '/'"


def problems(refusal: pytest.ExceptionInfo[ValidationError]) -> list[tuple[str, str]]:
    return [
        (".".join(str(part) for part in entry["loc"]), entry["msg"].removeprefix("Value error, "))
        for entry in refusal.value.errors()
    ]


def test_by_default_a_task_sees_and_writes_the_whole_repository_unguarded() -> None:
    spec = WorkspaceSpec()

    assert (spec.prefix, spec.read_only, spec.pre, spec.post) == ("", False, (), ())


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        pytest.param("/", "", id="whole repository"),
        pytest.param("/features", "features", id="leading slash"),
        pytest.param("features", "features", id="no leading slash"),
        pytest.param("/audio/render", "audio/render", id="nested"),
        pytest.param("a b/ü", "a b/ü", id="spaces and letters"),
        pytest.param("..a/b..", "..a/b..", id="dots within names"),
        pytest.param("day=2026-01-01", "day=2026-01-01", id="partition"),
    ],
)
def test_a_prefix_is_kept_without_its_leading_slash(written: str, kept: str) -> None:
    assert WorkspaceSpec(prefix=written).prefix == kept


@pytest.mark.parametrize(
    ("written", "message"),
    [
        pytest.param("", "prefix must not be blank: write '/' for the whole repository", id="empty"),
        pytest.param("  ", "prefix must not be blank: write '/' for the whole repository", id="spaces"),
        pytest.param("/ ", "prefix must not be blank: write '/' for the whole repository", id="slash and space"),
        pytest.param("//", f"prefix '//' {EMPTY_PART}", id="two slashes"),
        pytest.param("//a", f"prefix '//a' {EMPTY_PART}", id="two leading slashes"),
        pytest.param("a//b", f"prefix 'a//b' {EMPTY_PART}", id="double slash"),
        pytest.param("/a/", f"prefix '/a/' {EMPTY_PART}", id="trailing slash"),
        pytest.param(".", f"prefix '.' must not hold '.': {INSIDE}", id="here"),
        pytest.param("/a/./b", f"prefix '/a/./b' must not hold '.': {INSIDE}", id="dot"),
        pytest.param("/..", f"prefix '/..' must not hold '..': {INSIDE}", id="up"),
        pytest.param("a/../b", f"prefix 'a/../b' must not hold '..': {INSIDE}", id="up within"),
        pytest.param("a\\b", "prefix 'a\\\\b' must use '/', not a backslash", id="backslash"),
        pytest.param("a\nb", "prefix 'a\\nb' must not hold control characters", id="line break"),
        pytest.param("a\0b", "prefix 'a\\x00b' must not hold control characters", id="NUL"),
        pytest.param("C:/a", "prefix 'C:/a' must not start with a drive letter", id="drive"),
        pytest.param("/c:a", "prefix '/c:a' must not start with a drive letter", id="drive after a slash"),
        pytest.param("a\ud800", "prefix 'a\\ud800' must be valid Unicode text", id="surrogate"),
        pytest.param(
            "a/.perago-attempt.json", "prefix 'a/.perago-attempt.json' names Perago's own marker file", id="marker"
        ),
    ],
)
def test_a_prefix_that_is_no_plain_path_inside_is_refused(written: str, message: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        WorkspaceSpec(prefix=written)

    assert problems(refusal) == [("prefix", message)]


def test_guardrails_are_kept_in_the_order_written() -> None:
    pre = [require_dir("raw"), require_glob("raw/*.csv"), require_table("events")]
    post = [require_file("out.parquet"), forbid_glob("**/*.tmp"), change_budget(max_changed_objects=10)]

    spec = WorkspaceSpec(pre=pre, post=post)

    assert (spec.pre, spec.post) == (tuple(pre), tuple(post))


def test_guardrails_cannot_be_added_after_the_declaration() -> None:
    written = [require_dir("raw")]
    spec = WorkspaceSpec(pre=written)

    written.append(require_file("late"))

    assert spec.pre == (require_dir("raw"),)


@pytest.mark.parametrize("phase", ["pre", "post"])
@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("raw", "'raw' is no list: write [require_file('out.csv')]"),
        (require_dir("raw"), "RequireDir(path='raw') is no list: write [require_file('out.csv')]"),
        (None, "None is no list: write [require_file('out.csv')]"),
        (["raw/*.csv"], "'raw/*.csv' is no guardrail: write one like require_file('out.csv')"),
        ([require_dir("raw"), None], "None is no guardrail: write one like require_file('out.csv')"),
        pytest.param(
            [require_dir], f"{require_dir!r} is no guardrail: write one like require_file('out.csv')", id="not called"
        ),
    ],
)
def test_what_is_no_list_of_guardrails_is_refused_by_phase(phase: str, wrong: Any, problem: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        WorkspaceSpec.model_validate({phase: wrong})

    assert problems(refusal) == [(phase, problem)]


@pytest.mark.parametrize("given", [{"read_only": "yes"}, {"read_only": 1}, {"prefix": b"raw"}, {"prefix": None}])
def test_a_value_of_another_type_is_refused_by_field(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refusal:
        WorkspaceSpec.model_validate(given)

    assert [where for where, _ in problems(refusal)] == [*given]


def test_a_change_budget_before_the_body_is_refused_with_the_fix() -> None:
    with pytest.raises(ValidationError) as refusal:
        WorkspaceSpec(pre=[change_budget(max_changed_objects=1)])

    assert problems(refusal) == [("pre", "change_budget compares the result with the input: move it to post")]


def test_a_change_budget_on_a_read_only_workspace_is_refused_with_the_fix() -> None:
    with pytest.raises(ValidationError) as refusal:
        WorkspaceSpec(read_only=True, post=[change_budget(max_changed_objects=1)])

    assert problems(refusal) == [("", "a read_only workspace publishes no change: drop change_budget")]


def test_a_read_only_workspace_keeps_its_other_guardrails() -> None:
    assert WorkspaceSpec(read_only=True, post=[require_file("a")]).post == (require_file("a"),)


def test_unknown_fields_of_a_spec_are_refused() -> None:
    with pytest.raises(ValidationError, match="readonly\n  Extra inputs are not permitted"):
        WorkspaceSpec.model_validate({"readonly": True})


@pytest.mark.parametrize("model", [WorkspaceInput, WorkspaceOutput])
def test_a_complete_workspace_input_is_accepted(model: type[WorkspaceInput]) -> None:
    assert model.model_validate(HANDED_OVER).model_dump() == HANDED_OVER


@pytest.mark.parametrize("model", [WorkspaceInput, WorkspaceOutput])
@pytest.mark.parametrize("field", HANDED_OVER)
def test_a_workspace_input_lacks_nothing(model: type[WorkspaceInput], field: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        model.model_validate({name: value for name, value in HANDED_OVER.items() if name != field})

    assert problems(refusal) == [(field, "Field required")]


@pytest.mark.parametrize("field", ["repository", "branch", "ref"])
@pytest.mark.parametrize("value", ["", " ", "\t", " main", "main ", "ma in", "main\n", None, 5, True, ["main"]])
def test_a_name_that_is_blank_padded_or_no_text_is_refused_by_field(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refusal:
        WorkspaceInput.model_validate({**HANDED_OVER, field: value})

    assert {where for where, _ in problems(refusal)} == {field}


@pytest.mark.parametrize("value", ["branch", "tag", "COMMIT", "commit ", "", None])
def test_a_workspace_input_is_a_commit_and_nothing_else(value: Any) -> None:
    with pytest.raises(ValidationError) as refusal:
        WorkspaceInput.model_validate({**HANDED_OVER, "ref_type": value})

    assert problems(refusal) == [("ref_type", "Input should be 'commit'")]


@pytest.mark.parametrize("extra", ["prefix", "endpoint", "access_key_id", "staging_branch"])
def test_a_workspace_input_holds_nothing_else(extra: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        WorkspaceInput.model_validate({**HANDED_OVER, extra: "x"})

    assert problems(refusal) == [(extra, "Extra inputs are not permitted")]


def test_the_workspace_values_cannot_be_changed() -> None:
    staged = StagedWorkspace(repository="lake", branch="perago-staging-x", commit="c0ffee")

    with pytest.raises(ValidationError, match="frozen"):
        staged.commit = "other"  # pyright: ignore[reportAttributeAccessIssue]
