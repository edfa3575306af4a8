"""Opening a table on Spark, and telling a table that cannot be read from a server that cannot be reached."""

import logging
import re
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from perago.authoring.tables import RequireTable
from perago.extras import extra

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession

_SUFFIXES = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".avro": "avro",
    ".csv": "csv",
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".txt", ".text"), "text"),
}
_COMPRESSIONS = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate"})
_OPTIONS: dict[str, dict[str, Any]] = {
    # Every file's columns count, and files that disagree on a type are refused.
    "parquet": {"mergeSchema": True},
    "orc": {"mergeSchema": True},
    # Every field of every record is parsed, and each file's header must be the schema: by default Spark parses only
    # what a query needs and takes other files' columns by position.
    "csv": {
        "header": True,
        "inferSchema": True,
        "mode": "FAILFAST",
        "columnPruning": False,
        "enforceSchema": False,
    },
    "json": {"mode": "FAILFAST"},
}
# Spark skips 0-byte files. Of these formats none is whole; of JSON and text Spark itself writes them for no rows.
_NEVER_EMPTY = frozenset({"parquet", "orc", "avro", "csv"})
_SHOWN_FILES = 3

_DATA_CONDITIONS = ("FAILED_READ_FILE", "MALFORMED_", "CANNOT_MERGE_", "DATA_SOURCE_NOT_FOUND", "UNSUPPORTED_")
# A file that cannot be read because its store does not answer, or denies, says nothing about its contents.
_STORE_CAUSES = re.compile(
    r"java\.net\.|SdkClientException|AWSServiceIOException|AWSClientIOException|AWSBadRequest|AWSStatus5|NoHttpResponse"
    r"|ConnectTimeout|SocketTimeout|InterruptedIOException|AccessDenied|OutOfMemoryError|No space left"
)
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_NOISE = re.compile(r"^\(org\.apache[\w.$]+\) | ?SQLSTATE: \w+.*$")
_CONTEXT_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class UnreadableTableError(Exception):
    """A table, or a rule on it, that Spark cannot make sense of; the message is a violation's text."""


def spark_functions() -> Any:
    """Pyspark's functions; untyped here, once, because its own types are."""
    with extra("spark", "a table guardrail"):
        from pyspark.sql.connect import functions
    return functions


class OpenTable(NamedTuple):
    """A table's schema, and its rows as a DataFrame of just that schema."""

    schema: Any
    rows: Any


def open_table(spark: "SparkSession", rule: RequireTable, location: str) -> OpenTable:
    """A table with its schema known; no rows are read, but for what infers a CSV's or JSON's types."""
    with spark_errors_as_unreadable(rule):
        reader: Any = spark.read
        files: list[str] = []
        if rule.format != "delta":
            files = reader.format("text").load(location).inputFiles()
            if not files:
                raise UnreadableTableError("the directory holds no files")
        chosen = rule.format or _format_of(rule.path, files)
        format_reader: Any = spark.read.format(chosen).options(**_OPTIONS.get(chosen, {}))
        rows = format_reader.load(location)
        with ThreadPoolExecutor(1, thread_name_prefix="perago-schema") as beside:
            found = beside.submit(lambda: rows.schema)
            if files:
                _refuse_empty_files(spark, chosen, location, files)  # tells more than what Spark says of such a file
            schema = found.result()
        if not schema.fields:
            raise UnreadableTableError(f"no columns were found in it, read as {chosen}")
        if chosen != "delta":  # which has its schema in its log, and takes no other
            # Else each job would find it anew: in the footers of all files, or in all of a CSV's or JSON's text.
            rows = format_reader.schema(schema).load(location)
        return OpenTable(schema, rows)


@contextmanager
def spark_errors_as_unreadable(rule: RequireTable) -> Generator[None]:
    """Turn what Spark says about the data or the rules into UnreadableTableError; any other error passes through."""
    with extra("spark", "a table guardrail"):
        from pyspark.errors import PySparkException
    loggers = [logging.getLogger(name) for name in _CONTEXT_LOGGERS]
    disabled = [logger.disabled for logger in loggers]
    try:
        # pyspark prints such errors with the values in them, masked or not, before anybody can look at them.
        for logger in loggers:
            logger.disabled = True
        yield
    except PySparkException as error:
        if not _is_about_the_table(error):
            raise
        raise UnreadableTableError(_told(error, masked=bool(rule.mask))) from error
    finally:
        for logger, was in zip(loggers, disabled, strict=True):
            logger.disabled = was


def _format_of(path: str, files: Sequence[str]) -> str:
    formats = {_format_of_file(file) for file in (path, *files)} - {None}
    named = _format_of_file(path)
    if named is None and len(formats) > 1:
        known = ", ".join(sorted(str(found) for found in formats))
        raise UnreadableTableError(f"it holds files of several formats ({known}): say which with format=")
    return named or next(iter(formats), None) or "parquet"


def _format_of_file(file: str) -> str | None:
    suffixes = [suffix for suffix in PurePosixPath(file).suffixes if suffix not in _COMPRESSIONS]
    return _SUFFIXES.get(suffixes[-1].lower()) if suffixes else None


def _refuse_empty_files(spark: "SparkSession", chosen: str, location: str, files: Sequence[str]) -> None:
    reader: Any = spark.read
    # Of each file only its path is asked for, so none is opened.
    listed = {row[0] for row in reader.format("binaryFile").load(location).select("path").collect()}
    empty = len(files) - len(listed)
    if not listed or (empty and chosen in _NEVER_EMPTY):
        plain = {_plain(path) for path in listed}
        names = sorted(PurePosixPath(file).name for file in files if _plain(file) not in plain)[:_SHOWN_FILES]
        more = ", …" if empty > _SHOWN_FILES else ""
        raise UnreadableTableError(
            f"{empty} of {len(files)} files {'is' if empty == 1 else 'are'} empty (0 bytes): {', '.join(names)}{more}"
        )


def _plain(uri: str) -> str:
    """Spark writes local files now with one slash, now with three."""
    return re.sub(r"^(\w+):/+", r"\1:/", uri)


def _is_about_the_table(error: Any) -> bool:
    from pyspark.errors import (
        AnalysisException,
        ArithmeticException,
        ArrayIndexOutOfBoundsException,
        DateTimeException,
        NumberFormatException,
        SparkRuntimeException,
    )

    of_a_row = (ArithmeticException, ArrayIndexOutOfBoundsException, DateTimeException, NumberFormatException)
    condition = error.getCondition() or ""
    if isinstance(error, AnalysisException):
        return True
    known = isinstance(error, (*of_a_row, SparkRuntimeException)) or condition.startswith(_DATA_CONDITIONS)
    return known and not _STORE_CAUSES.search(_trace(error))


def _trace(error: Any) -> str:
    """The server's stack trace, for its causes; never shown."""
    get = getattr(error, "getStackTrace", None)
    return str(get() or "") if callable(get) else ""


def _told(error: Any, masked: bool) -> str:
    condition = error.getCondition() or type(error).__name__
    if condition == "PATH_NOT_FOUND":
        return "no such file or directory"
    if masked:
        # Spark's sentences quote values and records, and some columns must not be shown.
        from pyspark.errors import AnalysisException

        if not isinstance(error, AnalysisException):
            return f"Spark cannot read it or evaluate a rule on it: {condition}"
    lines = [line for text in str(error).splitlines() if (line := _NOISE.sub("", text).strip())]
    told = lines[0] if lines else condition
    causes = _CAUSE.findall(_trace(error)) if condition.startswith(("FAILED_READ_FILE", "CANNOT_MERGE")) else []
    return f"{told} ({_NOISE.sub('', causes[-1]).strip()})" if causes else told
