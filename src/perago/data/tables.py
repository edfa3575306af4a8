"""Table guardrails and change budgets, checked on Spark.

Measured on 5 M rows in 32 Parquet files: counting rows, nulls, conditions and freshness in one aggregate costs less
than half of a scan of all columns. Whether a key is unique is a job of its own (`table_keys`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from perago.authoring.errors import TaskExecutionError
from perago.authoring.guardrails import Guardrail
from perago.authoring.tables import ChangeBudget, RequireTable
from perago.data.table_columns import column, column_type
from perago.data.table_keys import KeyCheck
from perago.data.table_reading import (
    OpenTable,
    UnreadableTableError,
    open_table,
    spark_errors_as_unreadable,
    spark_functions,
)
from perago.data.table_samples import Samples

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
    "date": ("timestamp", "timestamp_ntz"),
}


@dataclass(frozen=True)
class Changes:
    """How many objects an attempt would add, change and delete."""

    objects_before: int
    added: int
    changed: int
    deleted: int


@dataclass(frozen=True)
class ComparedTable:
    """A table's location in the input and in the result; None where it is absent."""

    rule: RequireTable
    before: str | None
    after: str | None


def table_violation(
    spark: "SparkSession", rule: RequireTable, location: str, now: datetime | None = None
) -> str | None:
    """Every rule of the table that does not hold, with counts and sample rows; None when all hold.

    A Spark server that is lost, and a store that does not answer, are no violation: their errors pass through.
    """
    try:
        table = open_table(spark, rule, location)
        wrong = list(_schema_problems(rule, table.schema))
        if wrong:
            return "; ".join(wrong)
        with spark_errors_as_unreadable(rule):
            return _contents_problems(rule, table, now or datetime.now(UTC))
    except UnreadableTableError as unreadable:
        return str(unreadable)


def rule_violation(rule: Guardrail, spark: "Callable[[], SparkSession]", uri: Callable[[str], str]) -> str | None:
    """What was found of a guardrail that needs more than the names of files, when it does not hold."""
    match rule:
        case RequireTable():
            return table_violation(spark(), rule, uri(rule.path))
        case ChangeBudget():
            return None  # compares what is staged with the input, so it waits for the staging commit
        case _:
            raise TaskExecutionError(f"{rule} is of no known kind, so it cannot hold")


def budget_violation(
    budget: ChangeBudget, changes: Changes, tables: Sequence[ComparedTable], spark: "SparkSession | None"
) -> str | None:
    """Every limit that the change exceeds; None when it is within all.

    A table absent before has nothing to compare. One absent after has no rows and no schema. A table that was empty
    may grow to any size: there is no ratio to hold.
    """
    found = list(_object_problems(budget, changes))
    if budget.compares_tables:
        if spark is None:
            raise TaskExecutionError(f"{budget} compares tables, which needs Spark")
        for table in tables:
            found += [f"{table.rule.path}: {problem}" for problem in _comparison_problems(spark, budget, table)]
    return "; ".join(found) or None


def _schema_problems(rule: RequireTable, schema: Any) -> Iterator[str]:
    present = [field.name for field in schema.fields]
    typed = dict(rule.typed_columns)
    freshest = [rule.freshness[0]] if rule.freshness else []
    named = [*typed, *rule.filled_columns, *(column for key in rule.keys for column in key), *freshest, *rule.mask]
    missing = [name for name in dict.fromkeys(named) if column_type(schema, name) is None]
    for name in missing:
        yield f"column {name} is missing"
    if missing:
        yield f"it has the columns {', '.join(present)}"
    for name, wanted in typed.items():
        kind = column_type(schema, name)
        if kind is not None and kind.simpleString() != wanted:
            yield f"column {name} is {kind.simpleString()}, not {wanted}"
    if not rule.allows_other_columns:
        for field in schema.fields:
            if field.name not in typed:
                yield f"column {field.name} ({field.dataType.simpleString()}) is not in the schema"
    for name in freshest:
        kind = column_type(schema, name)
        if kind is not None and kind.simpleString() not in ("date", "timestamp", "timestamp_ntz"):
            yield f"freshness: column {name} is {kind.simpleString()}, not a date or a timestamp"


def _contents_problems(rule: RequireTable, table: OpenTable, now: datetime) -> str | None:
    functions = spark_functions()
    broken = {f"{name} is missing in": _is_missing(table.schema, name) for name in rule.filled_columns}
    broken |= {f"{condition} is broken by": _is_not_true(condition) for condition in rule.conditions}
    keys = [KeyCheck(table, key) for key in rule.keys]
    measures = [functions.count(functions.lit(1)), *(functions.count_if(is_broken) for is_broken in broken.values())]
    if rule.freshness:
        newest = functions.max(column(table.schema, rule.freshness[0]))
        measures.append(functions.unix_micros(newest.cast("timestamp")))
    measures += [measure for key in keys for measure in key.measures]
    # Positions, not names: two rules may read alike.
    measured = iter(
        table.rows.agg(*(measure.alias(f"m{index}") for index, measure in enumerate(measures))).collect()[0]
    )
    rows = next(measured)
    samples = Samples(rule, table)
    found = list(_row_count_problems(rule, rows))
    for told, is_broken in broken.items():
        if count := next(measured):
            found.append(f"{told} {_rows(count)}{samples.of(is_broken, told)}")
    if rule.freshness:
        found += _freshness_problems(rule, next(measured), now)
    for key in keys:
        found += key.problems(rows, [next(measured) for _ in key.measures], samples)
    return f"{_rows(rows)}: {'; '.join(found)}" if found else None


def _row_count_problems(rule: RequireTable, rows: int) -> Iterator[str]:
    if rule.min_rows is not None and rows < rule.min_rows:
        yield f"at least {rule.min_rows} needed"
    if rule.max_rows is not None and rows > rule.max_rows:
        yield f"at most {rule.max_rows} allowed"


def _freshness_problems(rule: RequireTable, newest: int | None, now: datetime) -> Iterator[str]:
    if rule.freshness is None:
        return
    column, allowed = rule.freshness
    if newest is None:
        yield f"{column} holds no value, so nothing is fresh"
        return
    age = now.timestamp() - newest / 1_000_000
    if age > allowed.total_seconds():
        shown = (
            "***" if column in rule.mask else f"{datetime.fromtimestamp(newest / 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        )
        yield f"the newest {column} is {shown}, older than {allowed}"


def _is_missing(schema: Any, name: str) -> Any:
    functions = spark_functions()
    value = column(schema, name)
    if column_type(schema, name).simpleString() in ("float", "double"):
        return value.isNull() | functions.isnan(value)
    return value.isNull()


def _is_not_true(condition: str) -> Any:
    functions = spark_functions()
    return ~functions.coalesce(functions.expr(condition), functions.lit(False))


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _object_problems(budget: ChangeBudget, changes: Changes) -> Iterator[str]:
    most = budget.max_deleted_fraction
    if most is not None and changes.deleted > most * changes.objects_before:
        share = changes.deleted / changes.objects_before if changes.objects_before else 1.0
        yield f"{changes.deleted} of {changes.objects_before} objects deleted ({share:.1%}), at most {most:.1%} allowed"
    touched = changes.added + changes.changed + changes.deleted
    if budget.max_changed_objects is not None and touched > budget.max_changed_objects:
        yield (
            f"{touched} objects changed ({changes.added} added, {changes.changed} changed, {changes.deleted} deleted),"
            f" at most {budget.max_changed_objects} allowed"
        )


def _comparison_problems(spark: "SparkSession", budget: ChangeBudget, table: ComparedTable) -> Iterator[str]:
    if table.before is None:
        return
    try:
        before = open_table(spark, table.rule, table.before)
        after = open_table(spark, table.rule, table.after) if table.after is not None else None
        if budget.rows is not None:
            with spark_errors_as_unreadable(table.rule):
                counts = before.rows.count(), after.rows.count() if after is not None else 0
            yield from _band_problems(budget.rows, *counts)
        if budget.schema is not None and after is None:
            yield f"the table is gone, its schema must stay {budget.schema}"
        elif budget.schema is not None and after is not None:
            moved = list(_schema_moves(before.schema, after.schema, budget.schema))
            if moved:
                yield f"{', '.join(moved)}; the schema must stay {budget.schema}"
    except UnreadableTableError as unreadable:
        yield str(unreadable)


def _band_problems(band: tuple[float, float], before: int, after: int) -> Iterator[str]:
    low, high = band
    if before and not low * before <= after <= high * before:
        yield (
            f"{_rows(after)} after {_rows(before)} before ({after / before:.2f} times),"
            f" between {low} and {high} times allowed"
        )


def _schema_moves(before: Any, after: Any, allowed: str) -> Iterator[str]:
    old = {field.name: field.dataType for field in before.fields}
    new = {field.name: field.dataType for field in after.fields}
    for name, kind in old.items():
        if name not in new:
            yield f"column {name} is gone"
        elif new[name].simpleString() != kind.simpleString() and (allowed == "equal" or not _widens(kind, new[name])):
            yield f"column {name} was {kind.simpleString()} and is {new[name].simpleString()}"
    if allowed == "equal":
        yield from (f"column {name} is new" for name in new if name not in old)


def _widens(old: Any, new: Any) -> bool:
    """Whether every value of the old type is one of the new."""
    if old.simpleString() == new.simpleString() or new.simpleString() in _WIDER.get(old.simpleString(), ()):
        return True
    if old.typeName() != new.typeName():
        return False
    match old.typeName():
        case "decimal":
            whole = new.precision - new.scale >= old.precision - old.scale
            return whole and new.scale >= old.scale
        case "array":
            return _widens(old.elementType, new.elementType)
        case "map":
            return _widens(old.keyType, new.keyType) and _widens(old.valueType, new.valueType)
        case "struct":
            return not list(_schema_moves(old, new, "compatible"))
        case _:
            return False
