"""Columns of a table by the names that rules give them."""

from typing import Any

from perago.data.table_reading import spark_functions


def column_type(schema: Any, name: str) -> Any:
    """The type of a column; a dot reaches into structs unless a column has that very name. None when absent."""
    fields = {field.name: field.dataType for field in getattr(schema, "fields", ())}
    if name in fields:
        return fields[name]
    head, dot, rest = name.partition(".")
    return column_type(fields[head], rest) if dot and head in fields else None


def column(schema: Any, name: str) -> Any:
    """The column itself, quoted so that no character of its name means anything to Spark."""
    parts: list[str] = []
    while name not in schema.names:
        head, _, name = name.partition(".")
        parts.append(head)
        schema = column_type(schema, head)
    return spark_functions().col(".".join(f"`{part.replace('`', '``')}`" for part in (*parts, name)))
