"""Paths as task authors write them: relative, `/`-separated, inside the workspace."""

import re

# The attempt's marker file. Its name belongs to Perago at every depth: never downloaded, published or counted.
MARKER_NAME = ".perago-attempt.json"

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DRIVE = re.compile(r"^/?[A-Za-z]:")


def checked_relative(path: str, what: str) -> str:
    """Return `path` if it is relative and stays inside; raise ValueError with the fix otherwise."""
    if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance] - what an author wrote
        raise ValueError(f"{what} must be a text like 'raw/in.csv', got {path!r}")
    if not path.strip():
        raise ValueError(f"{what} must not be blank")
    if path.startswith("/"):
        inner = path.lstrip("/")
        raise ValueError(f"{what} {path!r} must be relative: {f'write {inner!r}' if inner else 'name what is inside'}")
    _refuse_foreign_syntax(path, what)
    _refuse_bad_parts(path, what)
    return path


def normalised_prefix(prefix: str) -> str:
    """Return the prefix without its leading `/`; the whole repository is the empty string."""
    if prefix == "/":
        return ""
    inner = prefix.removeprefix("/")
    if not inner.strip():
        raise ValueError("prefix must not be blank: write '/' for the whole repository")
    _refuse_foreign_syntax(prefix, "prefix")
    _refuse_bad_parts(inner, "prefix", shown=prefix)
    return inner


def _refuse_foreign_syntax(path: str, what: str) -> None:
    if "\\" in path:
        raise ValueError(f"{what} {path!r} must use '/', not a backslash")
    if _CONTROL.search(path):
        raise ValueError(f"{what} {path!r} must not hold control characters")
    if _DRIVE.match(path):
        raise ValueError(f"{what} {path!r} must not start with a drive letter")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} {path!r} must be valid Unicode text") from None


def _refuse_bad_parts(path: str, what: str, shown: str | None = None) -> None:
    shown = shown or path
    for part in path.split("/"):
        if part == "":
            raise ValueError(f"{what} {shown!r} has an empty part: no double or trailing '/'")
        if part in (".", ".."):
            raise ValueError(f"{what} {shown!r} must not hold '{part}': it stays inside the workspace")
        if part == MARKER_NAME:
            raise ValueError(f"{what} {shown!r} names Perago's own marker file")
