"""Rules on a table's contents and on the size of a change. Declared here, checked on Spark by the attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perago.authoring.errors import TaskDefinitionError
from perago.authoring.guardrails import Guardrail
from perago.authoring.paths import checked_relative

SchemaChange = Literal["compatible", "equal"]


@dataclass(frozen=True)
class RequireTable(Guardrail):
    name: ClassVar[str] = "require_table"
    path: str = field(metadata={"positional": True})
    format: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    min_rows: int | None = None
    max_rows: int | None = None
    not_null: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    where: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChangeBudget(Guardrail):
    name: ClassVar[str] = "change_budget"
    max_deleted_fraction: float | None = None
    max_changed_objects: int | None = None
    rows: tuple[float, float] | None = None
    schema: SchemaChange | None = None


def require_table(
    path: str,
    format: str | None = None,  # noqa: A002 - the word Spark's users know
    columns: Mapping[str, str] | None = None,
    min_rows: int | None = None,
    max_rows: int | None = None,
    not_null: Sequence[str] = (),
    unique: Sequence[str] = (),
    where: Sequence[str] = (),
) -> Guardrail:
    """The workspace must hold a table at `path` whose rows obey every rule given.

    `columns` maps names to Spark SQL types, `unique` names the columns of one key, `where` holds SQL
    conditions that must be true of each row.
    """
    try:
        path = checked_relative(path, "require_table path")
    except ValueError as error:
        raise TaskDefinitionError(str(error)) from None
    call = f"require_table({path!r})"
    for rule, value in (("min_rows", min_rows), ("max_rows", max_rows)):
        if value is not None and value < 0:
            raise TaskDefinitionError(f"{call}: {rule} must not be negative, got {value}")
    if min_rows is not None and max_rows is not None and max_rows < min_rows:
        raise TaskDefinitionError(f"{call}: max_rows ({max_rows}) must not be less than min_rows ({min_rows})")
    for rule, values in (("not_null", not_null), ("unique", unique), ("where", where)):
        if isinstance(values, str):
            raise TaskDefinitionError(f"{call}: {rule} takes a list: write {rule}=[{values!r}]")
    return RequireTable(
        path,
        format,
        tuple((columns or {}).items()),
        min_rows,
        max_rows,
        tuple(not_null),
        tuple(unique),
        tuple(where),
    )


def change_budget(
    max_deleted_fraction: float | None = None,
    max_changed_objects: int | None = None,
    rows: tuple[float, float] | None = None,
    schema: SchemaChange | None = None,
) -> Guardrail:
    """What an attempt would publish may differ from its input by this much and no more.

    `rows` is the band of the new row count over the old one, `schema` how far a table's schema may move.
    """
    if max_deleted_fraction is not None and not 0 <= max_deleted_fraction <= 1:
        raise TaskDefinitionError(
            f"change_budget: max_deleted_fraction must lie between 0 and 1, got {max_deleted_fraction}"
        )
    if max_changed_objects is not None and max_changed_objects < 0:
        raise TaskDefinitionError(f"change_budget: max_changed_objects must not be negative, got {max_changed_objects}")
    if rows is not None and not 0 <= rows[0] <= rows[1]:
        raise TaskDefinitionError(f"change_budget: rows must be a band like (0.9, 1.5), got {rows}")
    budget = ChangeBudget(max_deleted_fraction, max_changed_objects, rows, schema)
    if budget == ChangeBudget():
        raise TaskDefinitionError("change_budget() limits nothing: give at least one limit")
    return budget
