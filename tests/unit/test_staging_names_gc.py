"""A staging branch's name tells its attempt, and a foreign name tells nothing."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago.protocol.attempt import Attempt
from perago.protocol.names import attempt_of_staging_branch, staging_branch_name

EXECUTION = "0123456789abcdef" * 2
TASK = "04fa75af-c778-44bb-8335-8c142340a828"
NAME = f"perago-staging-w-1-work-seq-1-iteration-0-task-id-{TASK}-retry-2-exec-{EXECUTION}"


def attempt(task_id: str, retry_count: int, reference: str = "work", workflow: str = "w-1") -> Attempt:
    return Attempt(
        workflow_instance_id=workflow,
        task_id=task_id,
        retry_count=retry_count,
        reference_task_name=reference,
        seq=1,
        iteration=0,
        status="IN_PROGRESS",
    )


@given(st.uuids(), st.integers(0, 10), st.uuids(), st.text(min_size=1), st.uuids())
def test_the_attempt_is_found_again_in_the_name_of_its_branch(
    task_id: uuid.UUID, retry_count: int, workflow: uuid.UUID, reference: str, execution: uuid.UUID
) -> None:
    named = staging_branch_name(attempt(str(task_id), retry_count, reference, str(workflow)), execution.hex)

    assert attempt_of_staging_branch(named) == (str(task_id), retry_count)


@pytest.mark.parametrize("reference", ["a-task-id-b-retry-9", f"x-exec-{EXECUTION}", "r-seq-1-iteration-2-task-id-3"])
def test_a_reference_that_looks_like_a_name_does_not_hide_the_attempt(reference: str) -> None:
    named = staging_branch_name(attempt(TASK, 2, reference), EXECUTION)

    assert attempt_of_staging_branch(named) == (TASK, 2)


@pytest.mark.parametrize(
    "branch",
    [
        "main",
        "perago-staging-",
        "perago-staging-by-hand",
        f"my-{NAME}",
        f"{NAME}-copy",
        NAME.removesuffix("f"),
        NAME.replace(EXECUTION, EXECUTION.upper()),
        NAME.replace("-retry-2", "-retry-two"),
        NAME.replace(f"-task-id-{TASK}", ""),
        NAME.replace("-seq-1", ""),
        f"{NAME}\n",
    ],
)
def test_a_foreign_name_tells_no_attempt(branch: str) -> None:
    assert attempt_of_staging_branch(NAME) == (TASK, 2)
    assert attempt_of_staging_branch(branch) is None
