"""`SparkWorkspace`: a task's files used in place, on lakeFS or in a plain directory."""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, cast

from perago.authoring.errors import TaskExecutionError
from perago.authoring.guardrails import Directory
from perago.authoring.paths import MARKER_NAME, checked_relative
from perago.lake.objects import PAGE, RemoteObject
from perago.protocol.paths import listing_prefix, object_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.readwriter import DataFrameReader
    from pyspark.sql.connect.session import SparkSession

_IN_MEMORY = 8 * 1024 * 1024
_SUCCESS = "_SUCCESS"
_MARKS_SUCCESS = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
Kind = Literal["file", "directory", "symlink", "other"]
Mode = Literal["overwrite", "append", "ignore", "error"]
OpenMode = Literal["r", "rb", "w", "wb"]


def is_leftover(path: str) -> bool:
    """Whether a path is what Spark leaves behind while it works: never a part of a table."""
    parts = path.split("/")
    return parts[-1] in ("", _SUCCESS) or any(
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


def file_uri(root: Path, path: str) -> str:
    """A path below a local directory as Spark takes it: Hadoop decodes no escapes, and `*` stays a pattern."""
    return f"file://{root.absolute() / path}"


class DirectoryPlace:
    """A plain directory, for an author's own tries."""

    writable = True

    def __init__(self, root: Path) -> None:
        self._root = root

    def uri(self, path: str) -> str:
        return file_uri(self._root, path)

    def kind(self, path: str) -> Kind | None:
        return Directory(self._root).kind(path)

    def list(self, path: str) -> Iterator[str]:
        under = f"{path}/" if path else ""
        yield from (file for file in Directory(self._root).files if file.startswith(under))

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
        for path in paths:
            (self._root / path).unlink(missing_ok=True)


class PlacedWorkspace:
    """A `SparkWorkspace` as its body gets it."""

    def __init__(self, spark: "SparkSession", place: Place) -> None:
        self._spark = spark
        self._place = place
        self._asked_for: set[str] = set()
        #: Side files that are open, or could not be stored. Python swallows what goes wrong when it closes a file that
        #: nobody closed.
        self._unstored: dict[str, BaseException | None] = {}

    @property
    def spark(self) -> "SparkSession":
        return self._spark

    @property
    def read(self) -> "DataFrameReader":
        from pyspark.sql.connect.readwriter import DataFrameReader

        workspace = self

        class Reader(DataFrameReader):
            """Spark's own reader; each of its ways to name files ends in `load`."""

            def load(self, path: Any = None, *given: Any, **options: Any) -> Any:
                match path:
                    case list():
                        located = [workspace.uri(str(one)) for one in cast("list[Any]", path)]
                    case str():
                        located = workspace.uri(path)
                    case _:
                        located = path
                return super().load(located, *given, **options)

        return Reader(self._spark)

    def write(
        self,
        df: "DataFrame",
        path: str,
        *,
        format: str = "parquet",  # noqa: A002 - the word Spark's users know
        mode: Mode = "error",
        partition_by: Sequence[str] = (),
        success_marker: bool = False,
        **options: Any,
    ) -> None:
        located, inside = self._writable(path), _inside(path)
        before = set(self._place.list(inside))
        writer = df.write.format(format).mode(mode).options(**options)
        if partition_by:
            writer = writer.partitionBy(*([partition_by] if isinstance(partition_by, str) else partition_by))
        if success_marker:
            writer = writer.option(_MARKS_SUCCESS, "true")
            self._asked_for.add(f"{inside}/{_SUCCESS}")
        try:
            writer.save(located)
        except BaseException:
            # Some of the job's files may have come to their place already: a part of a table is never published.
            self._place.remove([file for file in self._place.list(inside) if file not in before])
            raise

    def uri(self, path: str = "") -> str:
        return self._place.uri(_inside(path))

    def files(self, path: str = "") -> Sequence[str]:
        return [file for file in self._place.list(_inside(path)) if not is_leftover(file)]

    def exists(self, path: str) -> bool:
        return self._place.kind(_inside(path)) is not None

    def remove(self, path: str) -> None:
        self._writable(path)
        inside = _inside(path)
        gone = [inside] if self._place.kind(inside) == "file" else list(self._place.list(inside))
        self._place.remove(gone)

    def open(self, path: str, mode: OpenMode = "rb") -> IO[Any]:
        if mode not in ("r", "rb", "w", "wb"):
            raise ValueError(f"workspace.open takes mode r, rb, w or wb, not {mode!r}")
        inside = _inside(path)
        if not inside:
            raise ValueError("workspace.open needs the path of a file")
        if mode in ("w", "wb"):
            self._writable(path)
            self._asked_for.add(inside)
            self._unstored[inside] = None
            content = cast(
                "IO[bytes]", _Written(partial(self._store, inside), lambda: self._unstored.pop(inside, None))
            )
        else:
            content = self._copied(inside)
        return content if mode.endswith("b") else _Text(content, encoding="utf-8")

    def require_stored(self) -> None:
        """Every side file must have come to its place; asked once the body has returned."""
        for path, error in self._unstored.items():
            if error is None:
                raise TaskExecutionError(
                    f"the body left {path!r} open: write side files in a `with` block, or close them"
                )
            raise TaskExecutionError(f"the side file {path!r} could not be stored: {error}") from error

    def _store(self, path: str, content: IO[bytes], size: int) -> None:
        try:
            self._place.write(path, content, size)
        except BaseException as error:
            self._unstored[path] = error
            raise
        self._unstored.pop(path, None)

    def _copied(self, path: str) -> IO[bytes]:
        copy = cast("IO[bytes]", SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - the body closes it
        try:
            self._place.read(path, copy)
        except BaseException:
            copy.close()
            raise
        copy.seek(0)
        return copy

    def was_asked_for(self, path: str) -> bool:
        """Whether the body wants a file that looks like one of Spark's own."""
        return path in self._asked_for

    def _writable(self, path: str) -> str:
        if not self._place.writable:
            raise TaskExecutionError(f"the workspace is read-only, so {path!r} cannot be written")
        if not _inside(path):
            raise TaskExecutionError("a table needs a path of its own below the workspace's root")
        return self.uri(path)


def _inside(path: str) -> str:
    """A path of the workspace; one that would leave it is refused."""
    return checked_relative(path.rstrip("/"), "workspace path") if path.rstrip("/") else ""


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


class _Text(io.TextIOWrapper):
    """Text over a side file; what was written in a block that ended in an error is not stored."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and isinstance(self.buffer, _Written):
            self.buffer.drop()
        super().__exit__(kind, error, trace)


class _Written(io.BufferedIOBase):
    """A file that goes to its place when it is closed, unless its block ended in an error."""

    def __init__(self, store: Callable[[IO[bytes], int], None], dropped: Callable[[], object]) -> None:
        self._dropped = dropped
        self._file = cast("IO[bytes]", SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - closed by close
        self._store: Callable[[IO[bytes], int], None] | None = store

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, chunk: Any, /) -> int:
        return self._file.write(chunk)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def drop(self) -> None:
        """Close it and store nothing."""
        self._store = None
        self._dropped()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.drop()
        super().__exit__(kind, error, trace)

    def close(self) -> None:
        if self.closed:
            return
        store, self._store = self._store, None
        try:
            if store is not None:
                store(self._file, self._file.seek(0, os.SEEK_END))
        finally:
            self._file.close()
            super().close()
