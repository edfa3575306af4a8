"""Change budgets: what is staged compared with the input, before anybody sees it."""

from typing import TYPE_CHECKING

from perago.authoring.errors import TaskExecutionError
from perago.authoring.guardrails import violated
from perago.authoring.tables import ChangeBudget, RequireTable
from perago.authoring.workspace import StagedWorkspace, WorkspaceInput, WorkspaceSpec
from perago.data.places import LakePlace
from perago.data.spark_files import SparkFiles
from perago.data.tables import Changes, ComparedTable, budget_violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.connect.session import SparkSession


def check_budgets(
    spec: WorkspaceSpec,
    given: WorkspaceInput,
    staged: StagedWorkspace,
    files: SparkFiles | None,
    spark: "Callable[[], SparkSession]",
) -> None:
    """Every budget of a task, in order; the first that is exceeded is raised."""
    for budget in spec.post:
        if not isinstance(budget, ChangeBudget):
            continue
        if files is None:
            raise TaskExecutionError(f"{budget} cannot be checked: there is nothing to compare with")
        before = files.place(given.repository, given.ref, spec.prefix)
        after = files.place(staged.repository, staged.commit, spec.prefix)
        found = files.difference(given.repository, given.ref, staged.commit, spec.prefix)
        # Counting a large workspace is a long listing, so it is done for the budget that needs it.
        objects = sum(1 for _ in before.list("")) if budget.max_deleted_fraction is not None else 0
        rules = [rule for rule in spec.post if isinstance(rule, RequireTable)] if budget.compares_tables else []
        violation = budget_violation(
            budget,
            Changes(objects, found.added, found.changed, found.deleted),
            [_compared(rule, before, after) for rule in rules],
            spark() if rules else None,
        )
        if violation is not None:
            raise violated(budget, "post", violation)


def _compared(rule: RequireTable, before: LakePlace, after: LakePlace) -> ComparedTable:
    return ComparedTable(
        rule,
        before.uri(rule.path) if before.kind(rule.path) is not None else None,
        after.uri(rule.path) if after.kind(rule.path) is not None else None,
    )
