"""`SparkWorkspace`: a task's files used in place, wherever that is."""

import io
import os
from collections.abc import Callable, Sequence
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from perago.authoring.errors import TaskExecutionError
from perago.authoring.paths import checked_relative
from perago.data.places import SUCCESS_MARKER, Place, is_leftover

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.connect.readwriter import DataFrameReader
    from pyspark.sql.connect.session import SparkSession

_IN_MEMORY = 8 * 1024 * 1024
_MARKS_SUCCESS = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
Mode = Literal["overwrite", "append", "ignore", "error"]
OpenMode = Literal["r", "rb", "w", "wb"]


class PlacedWorkspace:
    """A `SparkWorkspace` as its body gets it."""

    def __init__(self, spark: "SparkSession", place: Place) -> None:
        self._spark = spark
        self._place = place
        self._asked_for: set[str] = set()
        #: Side files that are open, or could not be stored: Python swallows what goes wrong when it closes a file that
        #: nobody closed. And tables that a failed write left without files they had.
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
            self._asked_for.add(f"{inside}/{SUCCESS_MARKER}")
        try:
            writer.save(located)
        except BaseException as error:
            # Some of the job's files may have come to their place already: a part of a table is never published.
            now = set(self._place.list(inside))
            self._place.remove(sorted(now - before))
            if before - now:  # Spark removes what it is to replace before it begins
                self._unstored[inside] = error
            raise
        self._unstored.pop(inside, None)

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
        self._unstored = {
            path: error for path, error in self._unstored.items() if error is None or not _holds(inside, path)
        }

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
        """Everything written must have come to its place; asked once the body has returned."""
        for path, error in self._unstored.items():
            if error is None:
                raise TaskExecutionError(
                    f"the body left {path!r} open: write side files in a `with` block, or close them"
                )
            told = str(error).partition("\n")[0]
            raise TaskExecutionError(
                f"{path!r} could not be stored: {told}; write it again or remove it, where the body goes on without"
            ) from error

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


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _inside(path: str) -> str:
    """A path of the workspace; one that would leave it is refused."""
    return checked_relative(path.rstrip("/"), "workspace path") if path.rstrip("/") else ""


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
