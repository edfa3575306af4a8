"""A pandera model as a table's schema: its columns and checks translated into rules of ours.

pandera is never imported: a model of it is known by its shape, so the library is needed only by who writes one.
What cannot be translated is refused by name, since a check silently left out would pass what it forbids.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, cast

from perago.authoring.column_types import spark_type

# str() of pandera's dtypes: pandas' and numpy's names, pyspark's classes.
_DTYPES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "bool": "boolean",
    "boolean": "boolean",
    "str": "string",
    "string": "string",
    "string[python]": "string",
    "string[pyarrow]": "string",
    "datetime64[ns]": "timestamp_ntz",
    "datetime64[us]": "timestamp_ntz",
    "date": "date",
    "datetime64[ns, UTC]": "timestamp",
    "datetime64[us, UTC]": "timestamp",
}


@dataclass(frozen=True)
class TranslatedModel:
    columns: tuple[tuple[str, str], ...]
    exact: bool
    not_null: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]
    where: tuple[str, ...]


def is_model(value: object) -> bool:
    """Whether this is a pandera model (a class that makes a schema) or a schema with columns."""
    return callable(getattr(value, "to_schema", None)) or isinstance(getattr(value, "columns", None), Mapping)


def model_name(model: object) -> str:
    return getattr(model, "__name__", None) or getattr(model, "name", None) or type(model).__name__


def translated(model: Any) -> TranslatedModel:
    """The model's rules; raise ValueError that names what has no counterpart."""
    schema: Any = model.to_schema() if callable(getattr(model, "to_schema", None)) else model
    _refuse_unknown_demands(schema)
    columns: dict[str, str] = {}
    not_null: list[str] = []
    where: list[str] = []
    keys: list[tuple[str, ...]] = []
    for name, column in cast("Mapping[str, Any]", schema.columns).items():
        columns[name] = _type_of(name, column)
        _refuse_unknown_column(name, column)
        if not column.nullable:
            not_null.append(name)
        if getattr(column, "unique", False):
            keys.append((name,))
        where += [_condition(name, columns[name], column.nullable, check) for check in column.checks or ()]
    if not columns:
        raise ValueError("it has no columns")
    keys += _compound_keys(getattr(schema, "unique", None))
    return TranslatedModel(tuple(columns.items()), schema.strict is True, tuple(not_null), tuple(keys), tuple(where))


def _refuse_unknown_demands(schema: Any) -> None:
    for check in getattr(schema, "checks", None) or ():
        raise ValueError(f"the check {_name_of(check)} on the whole table cannot be translated: write it as where=[…]")
    if getattr(schema, "strict", False) not in (True, False):
        raise ValueError(f"strict={schema.strict!r} cannot be translated: use True or False")
    if getattr(schema, "index", None) is not None:
        raise ValueError("an index cannot be translated, a Spark table has none: make it a column")
    for demand in ("ordered", "drop_invalid_rows", "add_missing_columns", "parsers"):
        if getattr(schema, demand, False):
            raise ValueError(f"{demand} cannot be translated: drop it")


def _refuse_unknown_column(name: str, column: Any) -> None:
    if getattr(column, "regex", False):
        raise ValueError(f"column {name} is a regex, which cannot be translated: name each column")
    if not getattr(column, "required", True):
        raise ValueError(f"column {name} is optional, which cannot be translated: drop it or require it")
    for demand in ("parsers", "drop_invalid_rows"):
        if getattr(column, demand, False):
            raise ValueError(f"{demand} of column {name} cannot be translated: drop it")


def _compound_keys(unique: str | Iterable[str] | None) -> list[tuple[str, ...]]:
    if not unique:
        return []
    return [(unique,) if isinstance(unique, str) else tuple(unique)]


def _type_of(name: str, column: Any) -> str:
    kind: Any = getattr(column, "dtype", None)
    if kind is None:
        raise ValueError(f"column {name} has no dtype: give it one")
    simple = getattr(getattr(kind, "type", kind), "simpleString", None)
    written = str(simple()) if callable(simple) else _DTYPES.get(str(kind), str(kind))
    try:
        return spark_type(written)
    except ValueError:
        raise ValueError(f"dtype {kind} of column {name} cannot be translated: use require_table's columns") from None


def _condition(name: str, kind: str, nullable: bool, check: Any) -> str:
    shown = f"the check {_name_of(check)} of column {name}"
    translate = _CHECKS.get(str(getattr(check, "name", None)))
    statistics: Mapping[str, Any] = getattr(check, "statistics", None) or {}
    special = getattr(check, "groupby", None) is not None or getattr(check, "element_wise", False)
    if translate is None or special or not statistics:
        raise ValueError(f"{shown} cannot be translated: write it as where=[…]")
    if getattr(check, "raise_warning", False):
        raise ValueError(f"{shown} only warns, which a guardrail cannot: drop it or let it fail")
    column = _quoted(name)
    try:
        condition = translate(column, statistics)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{shown} cannot be translated ({error}): write it as where=[…]") from None
    can_be_nan = kind in ("float", "double")
    if not nullable:
        return condition
    if not getattr(check, "ignore_na", True):
        return f"NOT isnan({column}) AND {condition}" if can_be_nan else condition  # to Spark NaN is the largest
    missing = f"{column} IS NULL" + (f" OR isnan({column})" if can_be_nan else "")
    return f"{missing} OR {condition}"


def _name_of(check: Any) -> str:
    return str(getattr(check, "name", None) or getattr(check, "error", None) or check)


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name.replace('`', '``')}`"


def _literal(value: Any) -> str:
    value = value.item() if callable(getattr(value, "item", None)) else value
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | Decimal) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    raise ValueError(f"{value!r} has no SQL literal")


def _compared(sign: str, argument: str) -> Callable[[str, Mapping[str, Any]], str]:
    return lambda column, given: f"{column} {sign} {_literal(given[argument])}"


def _in_range(column: str, given: Mapping[str, Any]) -> str:
    low = ">=" if given.get("include_min", True) else ">"
    high = "<=" if given.get("include_max", True) else "<"
    return f"({column} {low} {_literal(given['min_value'])} AND {column} {high} {_literal(given['max_value'])})"


def _listed(word: str, argument: str) -> Callable[[str, Mapping[str, Any]], str]:
    def condition(column: str, given: Mapping[str, Any]) -> str:
        return f"{column} {word} ({', '.join(_literal(value) for value in given[argument])})"

    return condition


def _matched(opening: str, closing: str) -> Callable[[str, Mapping[str, Any]], str]:
    def condition(column: str, given: Mapping[str, Any]) -> str:
        pattern: Any = getattr(given["pattern"], "pattern", given["pattern"])
        if "(?P" in pattern:
            raise ValueError("Spark's patterns know no (?P…)")
        return f"{column} RLIKE {_literal(opening + pattern + closing)}"

    return condition


def _text_length(column: str, given: Mapping[str, Any]) -> str:
    bounds = (("min_value", ">="), ("max_value", "<="), ("exact_value", "="))
    wanted = [(sign, given[name]) for name, sign in bounds if given.get(name) is not None]
    return "(" + " AND ".join(f"length({column}) {sign} {_literal(value)}" for sign, value in wanted) + ")"


_CHECKS: dict[str, Callable[[str, Mapping[str, Any]], str]] = {
    "equal_to": _compared("=", "value"),
    "not_equal_to": _compared("!=", "value"),
    "greater_than": _compared(">", "min_value"),
    "greater_than_or_equal_to": _compared(">=", "min_value"),
    "less_than": _compared("<", "max_value"),
    "less_than_or_equal_to": _compared("<=", "max_value"),
    "in_range": _in_range,
    "isin": _listed("IN", "allowed_values"),
    "notin": _listed("NOT IN", "forbidden_values"),
    # pandera matches from the beginning, as re.match does; Spark looks anywhere.
    "str_matches": _matched("^(?:", ")"),
    "str_contains": _matched("", ""),
    "str_startswith": lambda column, given: f"startswith({column}, {_literal(given['string'])})",
    "str_endswith": lambda column, given: f"endswith({column}, {_literal(given['string'])})",
    "str_length": _text_length,
}
