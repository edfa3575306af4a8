"""From an error to what Conductor is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago import (
    PostGuardrailViolation,
    PreGuardrailViolation,
    PublishFenceError,
    StaleAttemptError,
    TaskExecutionError,
    TaskFailed,
    TaskInputError,
    TaskTerminalError,
)
from perago.lake.errors import (
    LakeBadRequest,
    LakeBusy,
    LakeConflict,
    LakeError,
    LakeForbidden,
    LakeNotFound,
    LakeOutcomeUnknown,
    LakeRefusedByHook,
    LakeUnauthorised,
    LakeUnreachable,
    answered,
    unanswered,
)
from perago.protocol.failures import Failure, classify

TERMINAL = "FAILED_WITH_TERMINAL_ERROR"


class AuthorsOwnError(TaskTerminalError):
    pass


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        pytest.param(TaskTerminalError("no rows"), Failure(TERMINAL, "no rows"), id="terminal, in the author's words"),
        pytest.param(AuthorsOwnError("no rows"), Failure(TERMINAL, "no rows"), id="a terminal error of the author's"),
        pytest.param(
            PreGuardrailViolation("missing"), Failure(TERMINAL, "PreGuardrailViolation: missing"), id="pre guardrail"
        ),
        pytest.param(TaskFailed("try later"), Failure("FAILED", "try later"), id="failed, in the author's words"),
        pytest.param(
            PostGuardrailViolation("x"), Failure("FAILED", "PostGuardrailViolation: x"), id="post guardrail is retried"
        ),
        pytest.param(StaleAttemptError("x"), Failure("FAILED", "StaleAttemptError: x"), id="attempt fence"),
        pytest.param(PublishFenceError("x"), Failure("FAILED", "PublishFenceError: x"), id="publish fence"),
        pytest.param(TaskInputError("x"), Failure("FAILED", "TaskInputError: x"), id="input"),
        pytest.param(TaskExecutionError("x"), Failure("FAILED", "TaskExecutionError: x"), id="anything of an attempt"),
        pytest.param(LakeUnreachable("x"), Failure("FAILED", "LakeUnreachable: x"), id="lakeFS"),
        pytest.param(ValueError("x"), Failure("FAILED", "ValueError: x"), id="a body's error"),
        pytest.param(SystemExit(3), Failure("FAILED", "SystemExit: 3"), id="a body's exit"),
        pytest.param(KeyboardInterrupt(), Failure("FAILED", "KeyboardInterrupt: "), id="a body's interrupt"),
    ],
)
def test_an_error_is_terminal_only_where_no_retry_can_help(error: BaseException, failure: Failure) -> None:
    assert classify(error, 500) == failure


@given(st.text(max_size=60), st.integers(1, 40))
def test_a_reason_is_as_long_as_allowed_and_shows_when_it_was_cut(words: str, allowed: int) -> None:
    reason = classify(TaskFailed(words), allowed).reason

    assert len(reason) <= allowed
    assert reason == words if len(words) <= allowed else reason == f"{words[: allowed - 1]}…"


@pytest.mark.parametrize(
    ("status", "kind", "kind_of_a_change"),
    [
        (400, LakeBadRequest, LakeBadRequest),
        (401, LakeUnauthorised, LakeUnauthorised),
        (403, LakeForbidden, LakeForbidden),
        (404, LakeNotFound, LakeNotFound),
        (409, LakeConflict, LakeConflict),
        (410, LakeNotFound, LakeNotFound),
        (412, LakeRefusedByHook, LakeRefusedByHook),
        (418, LakeError, LakeError),
        (423, LakeBusy, LakeBusy),
        (429, LakeBusy, LakeBusy),
        (500, LakeBusy, LakeOutcomeUnknown),
        (503, LakeBusy, LakeOutcomeUnknown),
        (504, LakeBusy, LakeOutcomeUnknown),
    ],
)
def test_an_answer_of_lakefs_means_one_thing(
    status: int, kind: type[LakeError], kind_of_a_change: type[LakeError]
) -> None:
    read, changed = answered("asking", status, "told"), answered("asking", status, "told", changes=True)

    assert (type(read), type(changed)) == (kind, kind_of_a_change)
    assert str(read).startswith(f"lakeFS answered {status} while asking: told")
    assert read.retryable is (kind is LakeBusy)


def test_no_answer_is_harmless_to_a_question_and_an_unknown_outcome_of_a_change() -> None:
    asked, changed = (unanswered("asking", TimeoutError(), changes=changes) for changes in (False, True))

    assert (type(asked), asked.retryable) == (LakeUnreachable, True)
    assert (type(changed), changed.retryable) == (LakeOutcomeUnknown, False)
