"""Names Perago gives to what it makes in lakeFS."""

import re
from hashlib import sha256
from typing import Literal

from perago.protocol.attempt import Attempt

STAGING_PREFIX = "perago-staging-"

# lakeFS branch ids are word characters and '-'.
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_SEGMENT_LENGTH = 64
_DIGEST_LENGTH = 10


def staging_branch_name(attempt: Attempt, execution_id: str) -> str:
    """The branch of one execution: readable, lakeFS-safe, and never that of another execution."""
    return (
        f"{STAGING_PREFIX}{branch_segment(attempt.workflow_instance_id)}"
        f"-{branch_segment(attempt.reference_task_name)}"
        f"-seq-{attempt.seq}-iteration-{attempt.iteration}"
        f"-task-id-{branch_segment(attempt.task_id)}-retry-{attempt.retry_count}"
        f"-exec-{branch_segment(execution_id)}"
    )


def branch_segment(text: str) -> str:
    """`text` in lakeFS-safe characters; what had to be altered carries a digest, so two never become one."""
    safe = _UNSAFE.sub("-", text)
    if safe == text and 0 < len(text) <= _SEGMENT_LENGTH:
        return text
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{safe[: _SEGMENT_LENGTH - _DIGEST_LENGTH - 1]}-{digest}"


def commit_message(task_name: str, attempt: Attempt) -> str:
    """What people read in the branch's history."""
    return f"{task_name}: {attempt.reference_task_name} of workflow {attempt.workflow_instance_id}"


def commit_metadata(
    task_name: str, attempt: Attempt, execution_id: str, input_ref: str, phase: Literal["try", "confirm"]
) -> dict[str, str]:
    """For people and audits; no decision reads it, but for lakeFS's own hook of a hard fence."""
    return {
        "perago.phase": phase,
        "perago.task": task_name,
        "perago.workflow_instance_id": attempt.workflow_instance_id,
        "perago.reference_task_name": attempt.reference_task_name,
        "perago.task_id": attempt.task_id,
        "perago.retry_count": str(attempt.retry_count),
        "perago.execution_id": execution_id,
        "perago.expected_head": input_ref,
    }


_STAGING_BRANCH = re.compile(
    rf"{STAGING_PREFIX}.+-seq-\d+-iteration-\d+-task-id-(?P<task>.+)-retry-(?P<retry>\d+)-exec-[0-9a-f]{{32}}"
)


def attempt_of_staging_branch(branch: str) -> tuple[str, int] | None:
    """The task id and retry count in a staging branch's name."""
    found = _STAGING_BRANCH.fullmatch(branch)
    return (found["task"], int(found["retry"])) if found else None
