"""The workspace as declared (`WorkspaceSpec`), as handed over (`WorkspaceInput`) and as given back."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self, cast

from pydantic import AfterValidator, Field, PlainValidator, field_validator, model_validator

from perago.authoring.guardrails import Guardrail
from perago.authoring.paths import normalised_prefix
from perago.authoring.tables import ChangeBudget, RequireTable
from perago.authoring.validation import ClosedModel

# lakeFS knows no white space in any of these names, so a blank or padded one is a wiring mistake.
Reference = Annotated[str, Field(min_length=1, pattern=r"^\S+$")]


def _guardrails(given: object) -> tuple[Guardrail, ...]:
    """Written as a list, kept as a tuple: a spec is a value."""
    if not isinstance(given, list | tuple):
        raise ValueError(f"{given!r} is no list: write [require_file('out.csv')]")
    for guardrail in cast("Sequence[object]", given):
        if not isinstance(guardrail, Guardrail):
            raise ValueError(f"{guardrail!r} is no guardrail: write one like require_file('out.csv')")
    return tuple(cast("Sequence[Guardrail]", given))


Guardrails = Annotated[Sequence[Guardrail], PlainValidator(_guardrails)]


class WorkspaceSpec(ClosedModel):
    """The part of a repository a task sees, and what must hold there before and after its body.

    `prefix` is kept without its leading `/`; the whole repository, written `"/"`, is the empty string.
    A `read_only` task's local writes are discarded.
    """

    prefix: Annotated[str, AfterValidator(normalised_prefix)] = "/"
    read_only: bool = False
    pre: Guardrails = ()
    post: Guardrails = ()

    @field_validator("pre")
    @classmethod
    def _budgets_compare_after(cls, guardrails: Sequence[Guardrail]) -> Sequence[Guardrail]:
        if any(isinstance(guardrail, ChangeBudget) for guardrail in guardrails):
            raise ValueError("change_budget compares the result with the input: move it to post")
        return guardrails

    @model_validator(mode="after")
    def _read_only_changes_nothing(self) -> Self:
        if self.read_only and any(isinstance(guardrail, ChangeBudget) for guardrail in self.post):
            raise ValueError("a read_only workspace publishes no change: drop change_budget")
        return self

    @model_validator(mode="after")
    def _budgets_name_their_tables(self) -> Self:
        compared = any(isinstance(guardrail, RequireTable) for guardrail in self.post)
        for guardrail in self.post:
            if isinstance(guardrail, ChangeBudget) and guardrail.compares_tables and not compared:
                raise ValueError(
                    f"{guardrail} compares the tables that post requires, and it requires none:"
                    " add require_table(path) to post"
                )
        return self


class WorkspaceInput(ClosedModel):
    """Where a task reads (`ref`, an immutable commit) and where it publishes (`branch`)."""

    repository: Reference
    branch: Reference
    ref_type: Literal["commit"]
    ref: Reference


class WorkspaceOutput(WorkspaceInput):
    """The input with `ref` moved to what was published; the next task takes it as its input."""


class StagedWorkspace(ClosedModel):
    """A commit on an execution's own staging branch; publication and cleanup rest on it alone."""

    repository: Reference
    branch: Reference
    commit: Reference
