"""Rules on tables, checked on Spark (being written)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perago.authoring.tables import ChangeBudget, RequireTable


@dataclass(frozen=True)
class Changes:
    objects_before: int
    added: int
    changed: int
    deleted: int


@dataclass(frozen=True)
class ComparedTable:
    rule: RequireTable
    before: str | None
    after: str | None


def table_violation(spark: Any, rule: RequireTable, location: str, now: datetime | None = None) -> str | None:
    raise NotImplementedError


def budget_violation(budget: ChangeBudget, changes: Changes, tables: Sequence[ComparedTable], spark: Any) -> str | None:
    raise NotImplementedError
