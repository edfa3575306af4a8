"""Rules on a table's contents and on the size of a change. Declared here, checked on Spark by the attempt."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Literal, TypeVar, cast

from perago.authoring.column_types import named_types, spark_type
from perago.authoring.errors import TaskDefinitionError
from perago.authoring.guardrails import Guardrail, declared_path, refuse_bad_count
from perago.authoring.table_models import is_model, model_name, translated

SchemaChange = Literal["compatible", "equal"]
Key = tuple[str, ...]
_Item = TypeVar("_Item")
# avro and delta need their packages on the Spark server; without them the check fails and says so.
TABLE_FORMATS = ("parquet", "csv", "json", "orc", "text", "avro", "delta")


@dataclass(frozen=True)
class TableSchema:
    """A schema given whole, as the rules it stands for."""

    shown: str
    columns: tuple[tuple[str, str], ...]
    exact: bool
    not_null: tuple[str, ...] = ()
    unique: tuple[Key, ...] = ()
    where: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return self.shown


@dataclass(frozen=True)
class RequireTable(Guardrail):
    name: ClassVar[str] = "require_table"
    path: str = field(metadata={"positional": True})
    format: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    schema: TableSchema | None = None
    min_rows: int | None = None
    max_rows: int | None = None
    not_null: tuple[str, ...] = ()
    unique: tuple[Key, ...] = ()
    where: tuple[str, ...] = ()
    freshness: tuple[str, timedelta] | None = None
    mask: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Short: what was found follows, and a reason has few characters."""
        return f"{self.name}({self.path!r})"

    def __str__(self) -> str:
        as_written: dict[str, object] = {
            "format": self.format,
            "columns": dict(self.columns),
            "schema": self.schema,
            "min_rows": self.min_rows,
            "max_rows": self.max_rows,
            "not_null": list(self.not_null),
            "unique": [key[0] if len(key) == 1 else key for key in self.unique],
            "where": list(self.where),
            "freshness": self.freshness,
            "mask": list(self.mask),
        }
        given = [f"{name}={value!r}" for name, value in as_written.items() if value not in (None, [], {})]
        return f"{self.name}({', '.join([repr(self.path), *given])})"

    @property
    def typed_columns(self) -> tuple[tuple[str, str], ...]:
        """Columns that must be there with their types, by `columns` or `schema`."""
        return self.schema.columns if self.schema else self.columns

    @property
    def allows_other_columns(self) -> bool:
        return self.schema is None or not self.schema.exact

    @property
    def filled_columns(self) -> tuple[str, ...]:
        """Columns that must hold a value in each row."""
        return _distinct((*self.not_null, *(self.schema.not_null if self.schema else ())))

    @property
    def keys(self) -> tuple[Key, ...]:
        """Columns whose values together must differ from row to row."""
        return _distinct((*self.unique, *(self.schema.unique if self.schema else ())))

    @property
    def conditions(self) -> tuple[str, ...]:
        """SQL that must be true of each row."""
        return _distinct((*self.where, *(self.schema.where if self.schema else ())))


@dataclass(frozen=True)
class ChangeBudget(Guardrail):
    name: ClassVar[str] = "change_budget"
    max_deleted_fraction: float | None = None
    max_changed_objects: int | None = None
    rows: tuple[float, float] | None = None
    schema: SchemaChange | None = None

    @property
    def compares_tables(self) -> bool:
        return self.rows is not None or self.schema is not None


def require_table(
    path: str,
    format: str | None = None,  # noqa: A002 - the word Spark's users know
    columns: Mapping[str, str] | None = None,
    schema: Any = None,
    min_rows: int | None = None,
    max_rows: int | None = None,
    not_null: Sequence[str] = (),
    unique: Sequence[str | Key] = (),
    where: Sequence[str] = (),
    freshness: tuple[str, timedelta] | None = None,
    mask: Sequence[str] = (),
) -> Guardrail:
    """The workspace must hold a table at `path`, a file or a directory, whose rows obey every rule given.

    - `format`: parquet, csv, json, orc, text, avro or delta; by default what the files' suffix says, else parquet.
      CSV is read with a header and inferred types, CSV and JSON refuse malformed records.
    - `columns` maps names to Spark SQL types; other columns are allowed. `schema` is the whole schema instead: a DDL
      text (`"id bigint, amount double"`: exactly these columns, in any order) or a pandera model, whose checks are
      translated (its `coerce` is not: types must be right already).
    - `not_null`: a NULL, or a NaN of a float or double column, breaks it.
    - `unique`: each entry is one key and a tuple is a compound key: `["id"]`, `[("a", "b"), "c"]`. NULLs are equal.
    - `where`: SQL that must be true of each row; NULL is not true. Write `x IS NULL OR …` to let it pass.
    - `freshness`: `("updated_at", timedelta(days=1))`, the newest value is at most so old, and there is one. A date or
      a timestamp without zone is read in the Spark session's time zone.
    - `mask`: columns shown as `***` where a violation shows rows.

    A dot reaches into a struct (`"address.city"`). Only columns that a rule names are read.
    """
    path = declared_path(path, "require_table path")
    call = f"require_table({path!r})"
    if format is not None and format not in TABLE_FORMATS:
        raise TaskDefinitionError(f"{call}: format {format!r} is not known: use one of {', '.join(TABLE_FORMATS)}")
    if min_rows is not None:
        refuse_bad_count(call, "min_rows", min_rows)
    if max_rows is not None:
        refuse_bad_count(call, "max_rows", max_rows, "min_rows", min_rows or 0)
    if columns is not None and schema is not None:
        raise TaskDefinitionError(f"{call}: columns and schema both name the columns: give one of them")
    return RequireTable(
        path,
        format,
        _typed(call, columns),
        _schema(call, schema),
        min_rows,
        max_rows,
        _names(call, "not_null", not_null),
        _keys(call, unique),
        _names(call, "where", where),
        _freshness(call, freshness),
        _names(call, "mask", mask),
    )


def change_budget(
    max_deleted_fraction: float | None = None,
    max_changed_objects: int | None = None,
    rows: tuple[float, float] | None = None,
    schema: SchemaChange | None = None,
) -> Guardrail:
    """What an attempt would publish may differ from its input by this much and no more.

    `max_deleted_fraction` is of the input's objects; `max_changed_objects` counts added, changed and deleted ones.
    `rows` and `schema` compare each table that a `require_table` in `post` names: `rows` is the band of the new row
    count over the old one (a table that was absent or empty may have any), `schema="equal"` the same columns and types
    in any order, `"compatible"` new columns and wider types too.
    """
    if max_deleted_fraction is not None and not _is_band((max_deleted_fraction, 1)):
        raise TaskDefinitionError(
            f"change_budget: max_deleted_fraction must lie between 0 and 1, got {max_deleted_fraction!r}"
        )
    if max_changed_objects is not None:
        refuse_bad_count("change_budget", "max_changed_objects", max_changed_objects)
    if rows is not None and not _is_band(rows):
        raise TaskDefinitionError(f"change_budget: rows must be a band like (0.9, 1.5), got {rows}")
    if schema not in (None, "compatible", "equal"):
        raise TaskDefinitionError(f"change_budget: schema must be 'compatible' or 'equal', got {schema!r}")
    budget = ChangeBudget(max_deleted_fraction, max_changed_objects, (rows[0], rows[1]) if rows else None, schema)
    if budget == ChangeBudget():
        raise TaskDefinitionError("change_budget() limits nothing: give at least one limit")
    return budget


def _is_band(rows: Any) -> bool:
    try:
        low, high = rows
        return 0 <= low <= high
    except (TypeError, ValueError):
        return False


def _typed(call: str, columns: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if columns is None:
        return ()
    if not isinstance(columns, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - what an author wrote
        raise TaskDefinitionError(f"{call}: columns maps names to types: write columns={{'id': 'bigint'}}")
    if not columns:
        raise TaskDefinitionError(f"{call}: columns names no column: drop it or name one")
    try:
        return tuple((_name(name), spark_type(_name(kind))) for name, kind in columns.items())
    except ValueError as error:
        raise TaskDefinitionError(f"{call}: columns: {error}") from None


def _schema(call: str, schema: Any) -> TableSchema | None:
    if schema is None:
        return None
    try:
        if isinstance(schema, str):
            return _ddl(schema)
        if is_model(schema):
            rules = translated(schema)
            return TableSchema(
                model_name(schema), rules.columns, rules.exact, rules.not_null, rules.unique, rules.where
            )
    except ValueError as error:
        raise TaskDefinitionError(f"{call}: schema {_shown(schema)}: {error}") from None
    raise TaskDefinitionError(
        f"{call}: schema takes a DDL text like 'id bigint, amount double' or a pandera model, got {_shown(schema)}"
    )


def _ddl(ddl: str) -> TableSchema:
    columns = named_types(ddl)
    names = [name for name, _, _ in columns]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"column {name} is there twice")
    filled = tuple(name for name, _, required in columns if required)
    return TableSchema(repr(ddl), tuple((name, kind) for name, kind, _ in columns), exact=True, not_null=filled)


def _shown(schema: Any) -> str:
    return model_name(schema) if is_model(schema) else repr(schema)


def _names(call: str, rule: str, values: Sequence[str]) -> tuple[str, ...]:
    _refuse_no_list(call, rule, values)
    try:
        return tuple(_name(value) for value in values)
    except ValueError as error:
        raise TaskDefinitionError(f"{call}: {rule}: {error}") from None


def _keys(call: str, unique: Sequence[str | Key]) -> tuple[Key, ...]:
    _refuse_no_list(call, "unique", unique)
    keys = tuple((key,) if isinstance(key, str) else _names(call, "unique", key) for key in unique)
    for key in keys:
        if not key or len(set(key)) < len(key):
            raise TaskDefinitionError(f"{call}: unique: a compound key names columns, each once, got {key}")
        _names(call, "unique", key)
    return keys


def _refuse_no_list(call: str, rule: str, values: object) -> None:
    if isinstance(values, str) or not isinstance(values, Iterable):
        example = values if isinstance(values, str) else "…"
        raise TaskDefinitionError(f"{call}: {rule} takes a list: write {rule}=[{example!r}]")


def _freshness(call: str, freshness: Any) -> tuple[str, timedelta] | None:
    if freshness is None:
        return None
    given: tuple[Any, ...] = tuple(cast("Sequence[Any]", freshness)) if isinstance(freshness, tuple | list) else ()
    if len(given) != 2 or not isinstance(given[0], str) or not isinstance(given[1], timedelta) or not given[0].strip():
        raise TaskDefinitionError(
            f"{call}: freshness takes a column and an age: write freshness=('updated_at', timedelta(days=1))"
        )
    if given[1] <= timedelta(0):
        raise TaskDefinitionError(f"{call}: freshness needs an age above zero, got {given[1]}")
    return given[0], given[1]


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is no text that names or says something")
    return value


def _distinct(items: Sequence[_Item]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(items))
