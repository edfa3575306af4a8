"""The workspace of a Spark task, as its body sees it."""

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO, Any

    from pyspark.sql import DataFrame
    from pyspark.sql.connect.readwriter import DataFrameReader
    from pyspark.sql.connect.session import SparkSession


class SparkWorkspace(Protocol):
    """A workspace used in place through Spark; annotate a body's `workspace` with it.

    Nothing is downloaded. Every path is relative to the task's prefix and cannot leave it.
    """

    @property
    def spark(self) -> "SparkSession":
        """This attempt's own Spark Connect session."""
        ...

    @property
    def read(self) -> "DataFrameReader":
        """Read tables of the workspace as with `spark.read`, by relative path."""
        ...

    def write(
        self,
        df: "DataFrame",
        path: str,
        *,
        format: str = "parquet",  # noqa: A002 - the word Spark's users know
        mode: Literal["overwrite", "append", "ignore", "error"] = "error",
        partition_by: "Sequence[str]" = (),
        success_marker: bool = False,
        **options: "str | int | float | bool",
    ) -> None:
        """Write a table under `path`; it is published with the attempt or not at all.

        `options` are those of Spark's writer for the format. Spark's `_SUCCESS` file is written only with
        `success_marker`.
        """
        ...

    def uri(self, path: str = "") -> str:
        """The address of `path` for Spark's own readers and writers."""
        ...

    def files(self, path: str = "") -> "Sequence[str]":
        """The files below `path`, as relative paths."""
        ...

    def exists(self, path: str) -> bool:
        """Whether `path` is a file or holds any."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file, or everything below `path`."""
        ...

    def open(self, path: str, mode: Literal["r", "rb", "w", "wb"] = "rb") -> "IO[Any]":
        """Open a small side file; one that is written is there once it is closed."""
        ...
