"""Pydantic's verdicts as sentences that name the field."""

import warnings
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class ClosedModel(BaseModel):
    """A frozen value that refuses fields it does not know and values of another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)


def describe(error: ValidationError, at: str = "") -> str:
    """Name each wrong field and what is wrong with it, without echoing its value."""
    return "; ".join(_sentence(entry, at) for entry in error.errors(include_url=False, include_input=False))


def _sentence(entry: Any, at: str) -> str:
    where = ".".join(str(part) for part in ([at] if at else []) + list(entry["loc"]))
    message = str(entry["msg"]).removeprefix("Value error, ")
    if entry["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        message = "unknown field"
    elif entry["type"] == "missing":
        message = "missing"
    return f"{where}: {message}" if where else message


def warn_author(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn about a declaration that works but will surprise."""
    warnings.warn(message, category, stacklevel=3)
