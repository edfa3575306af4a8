"""A few rows that break a rule, shown without the columns that must not be."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perago.authoring.tables import Key, RequireTable
from perago.data.table_reading import OpenTable

_SAMPLES = 3
_SHOWN_COLUMNS = 8
_LONGEST = 80


class Samples:
    """Rows of one table for the messages of its rules; looked up only for rules that are broken."""

    def __init__(self, rule: RequireTable, table: OpenTable) -> None:
        self._mask = frozenset(rule.mask)
        self._rows = table.rows
        self._columns: list[str] = table.schema.names
        self._keys = {column.partition(".")[0] for key in rule.keys for column in key}

    def of(self, broken: Any, told: str) -> str:
        """Rows for which the column `broken` is true; the columns `told` speaks of and the keys are shown first."""
        spoken = set(re.findall(r"\w+", told))
        first = [name for name in self._columns if name in self._keys or name in spoken or set(name.split()) <= spoken]
        chosen = set([*first, *(name for name in self._columns if name not in first)][:_SHOWN_COLUMNS])
        shown = [name for name in self._columns if name in chosen]
        quoted = [f"`{name.replace('`', '``')}`" for name in shown]
        rows = self._rows.where(broken).select(*quoted).limit(_SAMPLES).collect()
        return _examples([self._row(shown, row) for row in rows])

    def of_keys(self, key: Key, repeated: Any) -> str:
        """Keys with how often each is there, from rows of the key's columns and a count."""
        rows = repeated.orderBy("count", ascending=False).limit(_SAMPLES).collect()
        return _examples([f"{self._row(key, row)} {row[len(key)]} times" for row in rows])

    def _row(self, names: Sequence[str], values: Sequence[Any]) -> str:
        return (
            "{"
            + ", ".join(f"{name}={self._shown(name, value)}" for name, value in zip(names, values, strict=False))
            + "}"
        )

    def _shown(self, path: str, value: Any) -> str:
        text = self._text(path, value)
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

    def _text(self, path: str, value: Any) -> str:
        parts = path.split(".")
        if any(".".join(parts[:length]) in self._mask for length in range(1, len(parts) + 1)):
            return "***"
        if value is None:
            return "NULL"
        if hasattr(value, "asDict"):
            fields = cast("Mapping[str, Any]", value.asDict())
            return (
                "{" + ", ".join(f"{name}={self._text(f'{path}.{name}', item)}" for name, item in fields.items()) + "}"
            )
        if isinstance(value, list):
            return "[" + ", ".join(self._text(path, item) for item in cast("list[Any]", value)) + "]"
        if isinstance(value, dict):
            pairs = cast("dict[Any, Any]", value).items()
            return "{" + ", ".join(f"{key}: {self._text(path, item)}" for key, item in pairs) + "}"
        return str(value)


def _examples(rows: Sequence[str]) -> str:
    return f" (e.g. {', '.join(rows)})" if rows else ""
