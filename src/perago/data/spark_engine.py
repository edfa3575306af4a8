"""The Spark engine: a plan's partitions over the Python workers of a Spark server on the same machine.

Partitions travel in waves. A wave is one Spark job of a few slices; a worker runs its slice's partitions as the local
engine would and answers with a row for each. What the workers need lies in a private directory below the attempt's
own, which they see because they share its disk. So a Spark plan holds a path and nothing else: no secret, no signed
address and no file name is in a plan, a log or Spark's pages.
"""

import fcntl
import os
import pickle
import time
import traceback
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import structlog

from perago.authoring.errors import PeragoError, RuntimeConfigError, TaskExecutionError
from perago.data.engine import Engine, local_engine, mapped_on, ordered_map
from perago.lake.objects import LakeObjects

if TYPE_CHECKING:
    from pydantic import SecretStr
    from pyspark.sql.connect.session import SparkSession

Item = TypeVar("Item")
Done = TypeVar("Done")

_log = structlog.get_logger("perago.spark")

# Objects after which `auto` goes on over Spark. See docs/decisions/0011-two-engines.md.
CROSSING = 1_000_000
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# A wave's job costs a fifth of a second, and its progress is told when a slice ends: waves grow until they take so
# long. A slice's partitions and results are in memory at once, which bounds them.
_WAVE_SECONDS = 4.0
_FIRST_SLICE = 64
_LARGEST_SLICE = 1024
# Threads of all workers together, as a multiple of the local engine's: lakeFS does not answer more at once sooner.
_CROWD = 2
_FEWEST_THREADS = 4
_ROWS = 64
_PATIENCE_SECONDS = 30.0


def engine_for(
    choice: Literal["auto", "spark", "local"], remote: str | None, session: "Callable[[], SparkSession]"
) -> Engine:
    """The engine that PERAGO_DATA_ENGINE asks for; `remote` is SPARK_REMOTE, None for an embedded server.

    `session` is asked when partitions first go to Spark, so nothing is started for a small plan.
    """
    if choice == "spark":
        require_shared_disk(remote, "PERAGO_DATA_ENGINE=spark", "set it to auto or local, or unset SPARK_REMOTE")
    if choice == "local" or not _shares_disk(remote):
        return local_engine
    return partial(spark_map, session) if choice == "spark" else partial(automatic_map, session)


def require_shared_disk(remote: str | None, asks: str, fix: str) -> None:
    if not _shares_disk(remote):
        raise RuntimeConfigError(
            f"{asks}: the workers of the Spark server at {_host(remote)} do not see this machine's disk, where"
            f" directory workspaces are: {fix}"
        )


def _shares_disk(remote: str | None) -> bool:
    return remote is None or _host(remote) in _LOOPBACK


def _host(remote: str | None) -> str:
    return urlsplit((remote or "").partition(";")[0]).hostname or ""


def automatic_map(
    session: "Callable[[], SparkSession]",
    work: Callable[[list[Item]], Done],
    partitions: Iterable[list[Item]],
    threads: int,
    scratch: Path,
    crossing: int = CROSSING,
) -> Generator[Done]:
    """Begin locally, and go on over Spark once so many objects were not all; without Spark, go on locally."""
    source = iter(partitions)
    yield from ordered_map(work, _first(source, crossing), threads)
    following = next(source, None)
    if following is None:
        return
    rest = chain([following], source)
    try:
        spark = session()
    except PeragoError as error:
        _log.warning("Spark cannot be had: the transfer goes on without it", error=str(error))
        yield from ordered_map(work, rest, threads)
        return
    yield from spark_map(lambda: spark, work, rest, threads, scratch)


def _first(source: Iterator[list[Item]], objects: int) -> Iterator[list[Item]]:
    seen = 0
    while seen < objects and (partition := next(source, None)) is not None:
        seen += len(partition)
        yield partition


def spark_map(
    session: "Callable[[], SparkSession]",
    work: Callable[[list[Item]], Done],
    partitions: Iterable[list[Item]],
    threads: int,
    scratch: Path,
) -> Generator[Done]:
    """`ordered_map` over Spark: results in order, a wave of partitions at a time, the same errors.

    When it ends, however it ends, no worker runs a partition any more.
    """
    source = iter(partitions)
    cores = os.cpu_count() or 1
    slices = _slices(source, cores, _FIRST_SLICE)
    if not slices:
        return
    each = min(threads, max(_FEWEST_THREADS, _CROWD * threads // cores))
    spark = session()
    with _shared(scratch, work) as folder, _interrupted_at_end(spark):
        length, first = _FIRST_SLICE, 0
        while slices:
            began = time.monotonic()
            yield from _wave(spark, folder, first, slices, each)
            first += sum(map(len, slices))
            length = _next_length(length, time.monotonic() - began)
            slices = _slices(source, cores, length)


def _slices(source: Iterator[list[Item]], cores: int, length: int) -> list[list[list[Item]]]:
    """The next partitions, in as many even parts as there are cores."""
    taken = list(islice(source, cores * length))
    size = -(-len(taken) // cores)
    return [taken[start : start + size] for start in range(0, len(taken), size)] if taken else []


def _next_length(length: int, seconds: float) -> int:
    if seconds > _WAVE_SECONDS:
        return max(1, length // 2)
    return min(_LARGEST_SLICE, length * 2) if seconds < _WAVE_SECONDS / 2 else length


@contextmanager
def _shared(scratch: Path, work: object) -> Generator[Path]:
    """A private directory with the work in it. Its end waits for the workers; one that comes later finds nothing."""
    folder = Path(mkdtemp(prefix="spark-", dir=scratch))
    try:
        with (folder / "owner").open("xb") as owner, (folder / "workers").open("xb") as workers:
            fcntl.flock(owner, fcntl.LOCK_EX)
            _write(folder / "work", work)
            try:
                yield folder
            finally:
                _await_end(workers)
    finally:
        rmtree(folder, ignore_errors=True)


def _await_end(workers: IO[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(workers, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                _log.error("Spark's workers did not end a transfer that is over", seconds=_PATIENCE_SECONDS)
                return
            time.sleep(0.01)


@contextmanager
def _interrupted_at_end(spark: "SparkSession") -> Generator[None]:
    tag = f"perago-transfer-{uuid.uuid4().hex}"
    spark.addTag(tag)
    try:
        yield
    except BaseException:
        try:
            spark.interruptTag(tag)
        except Exception as error:  # its server is gone, most likely, and its workers with it
            _log.warning("transfer on Spark not interrupted", error=type(error).__name__)
        raise
    finally:
        spark.removeTag(tag)


class _Failure(NamedTuple):
    """What became of a partition that has no result."""

    error: BaseException


def _wave(
    spark: "SparkSession", folder: Path, first: int, slices: Sequence[Sequence[object]], threads: int
) -> Generator[Any]:
    """One Spark job; each slice's results come when it has ended."""
    expected = first
    for number, partitions in enumerate(slices):
        _write(folder / f"{first}-{number}", (expected, partitions))
        expected += len(partitions)
    awaited = first
    for row in _rows(spark, len(slices), _Slice(str(folder), first, threads)):
        index, done = pickle.loads(row["row"])  # noqa: S301 - written by our own code in a worker
        if index != awaited:
            break
        if isinstance(done, _Failure):
            raise done.error
        awaited += 1
        yield done
    if awaited != expected:
        raise TaskExecutionError(f"Spark lost the result of partition {awaited} of a transfer")


def _rows(spark: "SparkSession", slices: int, run: "_Slice") -> Iterator[Any]:
    from grpc import RpcError
    from pyspark.errors import PySparkException
    from pyspark.sql.types import BinaryType, StructField, StructType

    try:
        numbers = cast("Any", spark.range(0, slices, 1, slices))
        yield from numbers.mapInArrow(run, StructType([StructField("row", BinaryType())])).toLocalIterator()
    except (PySparkException, RpcError) as error:
        raise TaskExecutionError(f"the transfer on Spark was broken off: {_cause(error)}") from error


def _cause(error: BaseException) -> str:
    """Spark's own words are pages long: of a Python worker's traceback the last line tells most, of gRPC's one."""
    lines = [line.strip() for line in str(error).partition("JVM stacktrace")[0].splitlines() if line.strip()]
    telling = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    telling += [line for line in lines if line.startswith("details = ")]
    return telling[-1] if telling else (lines or [type(error).__name__])[0]


# What follows runs in Spark's Python workers.


@dataclass(frozen=True)
class _Slice:
    """The function Spark carries to its workers."""

    folder: str
    wave: int
    threads: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        record_batch: Any = import_module("pyarrow").RecordBatch
        for batch in batches:
            for number in cast("list[int]", batch.column(0).to_pylist()):
                rows = self._rows(number)
                while some := list(islice(rows, _ROWS)):
                    yield record_batch.from_pydict({"row": some})

    def _rows(self, number: int) -> Iterator[bytes]:
        folder = Path(self.folder)
        with (folder / "owner").open("rb") as owner, (folder / "workers").open("rb") as workers:
            fcntl.flock(workers, fcntl.LOCK_SH)
            # Taken away, so that it is run once: a slice that Spark tries again may have been half done.
            first, partitions = _taken(folder / f"{self.wave}-{number}")
            part = _Part(_read(folder / "work"), owner, folder / "failed")
            numbered = enumerate(partitions, first)
            for index, done in mapped_on(_threads(self.threads), part, numbered, self.threads):
                yield _pickled(index, done)
                if isinstance(done, _Failure):
                    return


@dataclass(frozen=True)
class _Part:
    """Work over one partition of many, unless an earlier one has failed or nobody waits for it any more."""

    work: Callable[[Any], Any]
    owner: IO[bytes]
    failed: Path

    def __call__(self, numbered: tuple[int, Any]) -> tuple[int, Any]:
        index, partition = numbered
        try:
            if self._is_in_vain(index):
                return index, _Failure(TaskExecutionError("the transfer has been given up"))
            return index, self.work(partition)
        except Exception as error:
            error.add_note(f"In a Spark worker:\n{traceback.format_exc()}")
            self._tell_others(index)
            return index, _Failure(error)

    def _is_in_vain(self, index: int) -> bool:
        try:
            fcntl.flock(self.owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True  # who held it has died
        except BlockingIOError:
            pass
        return self.failed.exists() and int(self.failed.read_bytes()) < index

    def _tell_others(self, index: int) -> None:
        if not self._is_in_vain(index):
            aside = self.failed.with_name(f"failed-{index}")
            aside.write_bytes(b"%d" % index)
            aside.rename(self.failed)


def _pickled(index: int, done: object) -> bytes:
    try:
        return pickle.dumps((index, done))
    except Exception as error:
        told = done.error if isinstance(done, _Failure) else error
        return pickle.dumps((index, _Failure(TaskExecutionError(f"{type(told).__name__}: {told}"))))


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    """A worker process's own, from wave to wave: each thread keeps its connection."""
    return ThreadPoolExecutor(number, thread_name_prefix="perago-data")


@cache
def _objects_at(endpoint_url: str, access_key_id: str, secret_access_key: "SecretStr") -> LakeObjects:
    return LakeObjects(endpoint_url, access_key_id, secret_access_key)


class _Pickler(pickle.Pickler):
    """A gateway is written down as its address: its secret is in this file, which only we can read."""

    def persistent_id(self, obj: object) -> object:
        return obj.address if type(obj) is LakeObjects else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> LakeObjects:
        return _objects_at(*pid)


def _write(file: Path, content: object) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
        _Pickler(written, pickle.HIGHEST_PROTOCOL).dump(content)


def _read(file: Path) -> Any:
    with file.open("rb") as written:
        return _Unpickler(written).load()


def _taken(file: Path) -> Any:
    mine = file.with_name(f"{file.name}-{os.getpid()}")
    file.rename(mine)
    content = _read(mine)
    mine.unlink()
    return content
