"""Object paths of a repository and file paths of a workspace, mapped onto each other.

With prefix `audio/render`, object `audio/render/raw/in.wav` is the file `raw/in.wav`. What a directory
cannot hold is refused by name; a path that leaves the directory cannot be expressed.
"""

from perago.authoring.errors import TaskExecutionError
from perago.authoring.paths import MARKER_NAME

# What common file systems hold; longer names fail there with a message that names nothing.
_NAME_BYTES = 255
_PATH_BYTES = 4096


def object_path(prefix: str, file: str) -> str:
    """The object of a workspace file."""
    return f"{prefix}/{file}" if prefix else file


def listing_prefix(prefix: str) -> str:
    """What to list: with the closing '/', so that `a/b` never brings `a/bc`."""
    return f"{prefix}/" if prefix else ""


def workspace_file(prefix: str, path: str) -> str | None:
    """The workspace file of an object; None when it lies outside the prefix or is Perago's own.

    Raises when the object lies inside but no file can bear its name.
    """
    within = listing_prefix(prefix)
    if not path.startswith(within):
        return None
    file = path.removeprefix(within)
    parts = file.split("/")
    if MARKER_NAME in parts:
        return None
    problem = _unmappable(file, parts)
    if problem:
        raise TaskExecutionError(f"object {path!r} cannot be a file of the workspace: {problem}")
    return file


def _unmappable(file: str, parts: list[str]) -> str | None:
    if "" in parts:
        return "its path has an empty part"
    if "." in parts or ".." in parts:
        return "its path has a '.' or '..' part"
    if "\0" in file:
        return "its path holds a NUL character"
    if file.isascii() and len(file) <= _NAME_BYTES:
        return None  # as nearly all are
    try:
        lengths = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return "its path is not valid Unicode text"
    if max(lengths) > _NAME_BYTES or sum(lengths) + len(parts) > _PATH_BYTES:
        return f"its path is too long (a name of at most {_NAME_BYTES} bytes, {_PATH_BYTES} in all)"
    return None
