"""Where a workspace's files are: below a prefix on lakeFS, or in a plain directory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal, Protocol, cast

from perago.authoring.guardrails import Directory
from perago.authoring.paths import MARKER_NAME
from perago.lake.objects import PAGE, RemoteObject
from perago.protocol.paths import listing_prefix, object_path

SUCCESS_MARKER = "_SUCCESS"
Kind = Literal["file", "directory", "symlink", "other"]


def is_leftover(path: str) -> bool:
    """Whether a path is what Spark leaves behind while it works: never a part of a table."""
    parts = path.split("/")
    return parts[-1] in ("", SUCCESS_MARKER) or any(
        part == "_temporary" or part.startswith(".spark-staging") for part in parts
    )


class Place(Protocol):
    """Where a workspace's files are, by paths relative to it."""

    writable: bool

    def uri(self, path: str) -> str: ...
    def kind(self, path: str) -> Kind | None: ...
    def list(self, path: str) -> Iterator[str]: ...
    def read(self, path: str, into: IO[bytes]) -> None: ...
    def write(self, path: str, content: IO[bytes], size: int) -> None: ...
    def remove(self, paths: Sequence[str]) -> None: ...
    @property
    def files(self) -> Sequence[str]: ...


class Objects(Protocol):
    """The object calls a workspace on lakeFS needs."""

    def list(self, repository: str, ref: str, prefix: str) -> Iterable[RemoteObject]: ...
    def fetch(self, repository: str, ref: str, wanted: RemoteObject, sink: Any) -> int: ...
    def store(self, repository: str, branch: str, path: str, content: Callable[[], Any], size: int) -> None: ...
    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None: ...


class LakePlace:
    """The objects below a prefix at a branch or a commit."""

    def __init__(self, objects: Objects, repository: str, ref: str, prefix: str, *, writable: bool) -> None:
        self._objects = objects
        self._repository = repository
        self._ref = ref
        self._prefix = prefix
        self.writable = writable

    def uri(self, path: str) -> str:
        return "/".join(part for part in (f"s3a://{self._repository}/{self._ref}", self._prefix, path) if part)

    def kind(self, path: str) -> Kind | None:
        if self._stat(path) is not None:
            return "file"
        return "directory" if next(self.list(path), None) is not None else None

    def list(self, path: str) -> Iterator[str]:
        below = listing_prefix(object_path(self._prefix, path) if path else self._prefix)
        start = len(listing_prefix(self._prefix))
        for found in self._objects.list(self._repository, self._ref, below):
            inside = found.path[start:]
            if inside.rpartition("/")[2] != MARKER_NAME:
                yield inside

    @property
    def files(self) -> Sequence[str]:
        return [path for path in self.list("") if not is_leftover(path)]

    def read(self, path: str, into: IO[bytes]) -> None:
        found = self._stat(path)
        if found is None:
            raise FileNotFoundError(f"the workspace has no file {path!r}")
        self._objects.fetch(self._repository, self._ref, found, _Rewound(into))

    def write(self, path: str, content: IO[bytes], size: int) -> None:
        def again() -> IO[bytes]:
            content.seek(0)
            return cast("IO[bytes]", _Unclosed(content))

        self._objects.store(self._repository, self._ref, object_path(self._prefix, path), again, size)

    def remove(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), PAGE):
            batch = [object_path(self._prefix, path) for path in paths[start : start + PAGE]]
            self._objects.delete(self._repository, self._ref, batch)

    def _stat(self, path: str) -> RemoteObject | None:
        """The listing's first entry: an object sorts before everything its path begins."""
        wanted = object_path(self._prefix, path)
        first = next(iter(self._objects.list(self._repository, self._ref, wanted)), None)
        return first if first is not None and first.path == wanted else None


class _Rewound:
    """A file as a sink that can begin anew."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()

    def write(self, chunk: bytes) -> object:
        return self._file.write(chunk)


class _Unclosed:
    """Lends a file to whoever closes what it reads."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __enter__(self) -> "_Unclosed":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)


def file_uri(root: Path, path: str) -> str:
    """A path below a local directory as Spark takes it: Hadoop decodes no escapes, and `*` stays a pattern."""
    return f"file://{root.absolute() / path}"


class DirectoryPlace:
    """A plain directory, for an author's own tries."""

    def __init__(self, root: Path, *, writable: bool = True) -> None:
        self._root = root
        self.writable = writable

    def uri(self, path: str) -> str:
        return file_uri(self._root, path)

    def kind(self, path: str) -> Kind | None:
        return Directory(self._root).kind(path)

    def list(self, path: str) -> Iterator[str]:
        under = f"{path}/" if path else ""
        files = (file for file in Directory(self._root).files if file.startswith(under))
        yield from (file for file in files if not _is_checksum(file))

    @property
    def files(self) -> Sequence[str]:
        return [path for path in self.list("") if not is_leftover(path)]

    def read(self, path: str, into: IO[bytes]) -> None:
        into.write((self._root / path).read_bytes())

    def write(self, path: str, content: IO[bytes], size: int) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        content.seek(0)
        target.write_bytes(content.read())

    def remove(self, paths: Sequence[str]) -> None:
        for file in (self._root / path for path in paths):
            file.unlink(missing_ok=True)
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _is_checksum(path: str) -> bool:
    """Hadoop keeps one beside each file it writes to a disk, and none on lakeFS."""
    name = path.rpartition("/")[2]
    return name.startswith(".") and name.endswith(".crc")
