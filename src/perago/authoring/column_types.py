"""Spark SQL's column types as text, in the one spelling Spark uses in a schema."""

import re
from collections.abc import Iterator

_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
# A file's text comes back as string whatever it was declared as, so char and varchar could never hold.
PLAIN_TYPES = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"),
    *("string", "binary", "date", "timestamp", "timestamp_ntz", "variant"),
)
_ACCEPTED = f"{', '.join(PLAIN_TYPES)}, decimal(p,s), array<…>, map<…,…> or struct<name:…>"
_NAME = re.compile(r"`((?:[^`]|``)+)`|(\w+)")
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_MOST_DIGITS = 38


def spark_type(written: str) -> str:
    """The type as Spark shows it; raise ValueError with the accepted ones otherwise."""
    text = written.strip()
    head = re.match(r"\w*", text.lower())
    name = head.group() if head else ""
    name = _ALIASES.get(name, name)
    rest = text[len(head.group()) if head else 0 :].strip()
    inner = rest[1:-1] if rest.startswith("<") and rest.endswith(">") else None
    if inner is not None and name == "array":
        return f"array<{spark_type(inner)}>"
    if inner is not None and name == "map" and len(parts := list(_split(inner))) == 2:
        return f"map<{spark_type(parts[0])},{spark_type(parts[1])}>"
    if inner is not None and name == "struct" and inner.strip():
        return f"struct<{','.join(f'{field}:{kind}' for field, kind, _ in named_types(inner))}>"
    if name == "decimal":
        return _decimal(name + (rest or "(10,0)"), written)
    if name in PLAIN_TYPES and not rest:
        return name
    raise ValueError(f"{written!r} is no Spark SQL type of a table's files: use {_ACCEPTED}")


def named_types(ddl: str) -> list[tuple[str, str, bool]]:
    """The columns of a DDL text like `id bigint NOT NULL, tags array<string>`: name, type, whether NOT NULL."""
    found: list[tuple[str, str, bool]] = []
    for part in _split(ddl):
        text = part.strip()
        name = _NAME.match(text)
        if name is None:
            raise ValueError(f"{text!r} is no column: write it like 'id bigint'")
        kind = text[name.end() :].strip().removeprefix(":").strip()
        bare = re.sub(r"\s+not\s+null$", "", kind, flags=re.IGNORECASE)
        if not bare:
            raise ValueError(f"column {text!r} has no type: write it like '{text} bigint'")
        column = name.group(2) or name.group(1).replace("``", "`")
        found.append((column, spark_type(bare), bare != kind))
    return found


def _decimal(text: str, written: str) -> str:
    digits = _DECIMAL.fullmatch(text.lower())
    precision, scale = (int(digits.group(1)), int(digits.group(2) or 0)) if digits else (0, 0)
    if not scale <= precision <= _MOST_DIGITS or precision == 0:
        raise ValueError(f"{written!r} is no decimal type: write it like decimal(10,2), of 38 digits at most")
    return f"decimal({precision},{scale})"


def _split(text: str) -> Iterator[str]:
    """The parts between commas that stand in no bracket and in no quoted name."""
    depth, start, quoted = 0, 0, False
    for position, sign in enumerate(text):
        quoted ^= sign == "`"
        depth += 0 if quoted else (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0 and not quoted:
            yield text[start:position]
            start = position + 1
    yield text[start:]
