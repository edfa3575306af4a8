"""Class archives: what a Java server loads at every start, kept as the JVM has it in memory.

With one, Conductor and Spark start in half the time. It fits one Java and one list of jars: a JVM goes on without one
that does not fit.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from perago.data.spark_session import attempt_session
from perago.devstack.cache import Cache, is_intact
from perago.devstack.errors import DevStackError
from perago.devstack.processes import LOOPBACK, free_port, start_child
from perago.devstack.services import Launch, conductor_launch, conductor_ready, spark_launch, spark_ready

_SECONDS = 180
_NEEDED_BYTES = 500_000_000
_PREFIX = "classes-of-"
_ARCHIVE, _OWNER = "classes.jsa", "first-jar.txt"


def with_archive(cache: Cache, launch: Launch) -> Launch:
    """The same start, with its archive where one was made."""
    parts = [cache.root / _name_of_java(launch), cache.root / _name_of_server(launch)]
    if not all(map(is_intact, parts)):
        return launch
    return _with_options(launch, f"-XX:SharedArchiveFile={os.pathsep.join(str(part / _ARCHIVE) for part in parts)}")


def make_archives(cache: Cache, conductor: Path, jars: Path) -> None:
    """Start each Java server once and keep the classes it loaded; done already, it costs nothing.

    Without them everything works, so what goes wrong here is only told.
    """
    try:
        _make_of_conductor(cache, conductor)
        _make_of_spark(cache, jars)
        _drop_orphans(cache.root)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        cache.reporter.note(f"servers will start more slowly, for their classes could not be kept: {reason}")


def _make_of_conductor(cache: Cache, home: Path) -> None:
    with _scratch(cache) as folder:
        port = free_port()
        url = f"http://{LOOPBACK}:{port}"
        _make(cache, "Conductor", conductor_launch(home, folder, port), lambda: conductor_ready(url), folder)


def _make_of_spark(cache: Cache, jars: Path) -> None:
    with _scratch(cache) as folder:
        port = free_port()
        url = f"sc://{LOOPBACK}:{port}"
        launch = spark_launch(jars, folder, port)
        _make(cache, "Spark", launch, lambda: spark_ready(url), folder, lambda: _use_spark(url, folder))


@contextmanager
def _scratch(cache: Cache) -> Generator[Path]:
    """Beside the cache's entries: a folder for temporary files may not let programs be loaded from it."""
    shared = cache.scratch("servers")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)
    with suppress(OSError):  # another process has one there too
        shared.rmdir()


def _make(
    cache: Cache,
    server: str,
    launch: Launch,
    ready: Callable[[], bool],
    folder: Path,
    use: Callable[[], None] = lambda: None,
) -> None:
    java = launch.command[0]

    def learn_java(into: Path) -> None:
        _run([java, "-Xshare:dump", f"-XX:SharedArchiveFile={into / _ARCHIVE}"], folder)

    def learn_server(into: Path) -> None:
        base = f"-XX:SharedArchiveFile={of_java / _ARCHIVE}"
        with cache.reporter.step(f"Preparing {server}'s start"):
            learning = _with_options(launch, base, f"-XX:ArchiveClassesAtExit={into / _ARCHIVE}")
            _run_server(learning, ready, use, folder)
        if not (into / _ARCHIVE).exists():
            raise DevStackError(f"{server}'s class archive was not written: run `perago dev provision` again")
        (into / _OWNER).write_text(str(_jars(launch)[0]))

    # An entry of its own: the server's archive knows the path of the one below it, which must not move any more.
    of_java = cache.provide(_name_of_java(launch), learn_java, _NEEDED_BYTES)
    cache.provide(_name_of_server(launch), learn_server, _NEEDED_BYTES)


def _run_server(launch: Launch, ready: Callable[[], bool], use: Callable[[], None], folder: Path) -> None:
    log = folder / "log"
    process = start_child(launch.command, launch.environment, log, folder)
    try:
        deadline = time.monotonic() + _SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                told = log.read_text(errors="replace").splitlines()[-3:]
                raise DevStackError(f"a server did not start to be learned from: {' / '.join(told)}")
            time.sleep(0.05)
        use()
        process.terminate()
        process.wait(_SECONDS)  # the archive is written at its end
    finally:
        process.kill()
        process.wait()


def _use_spark(remote: str, folder: Path) -> None:
    """What attempts do most: tables written, read and counted."""
    with attempt_session(remote, uuid.uuid4().hex, None) as spark:
        rows = spark.range(1000).selectExpr("id", "id % 7 as part", "cast(id as string) as name", "rand() as amount")
        for kind in ("parquet", "csv", "json"):
            place = str(folder / kind)
            rows.write.partitionBy("part").format(kind).option("header", True).save(place)
            read = spark.read.format(kind).option("header", True).load(place)
            read.groupBy("part").agg({"id": "max", "*": "count"}).orderBy("part").collect()


def _name_of_java(launch: Launch) -> str:
    """Wherever it is installed: a Java is told by the file that holds its classes."""
    return _name(_size_and_time(Path(launch.command[0]).parent.parent / "lib" / "modules"))


def _name_of_server(launch: Launch) -> str:
    """An archive is of these very jars: Java asks for the same paths, sizes and times."""
    return _name(_name_of_java(launch), *((str(jar), *_size_and_time(jar)) for jar in _jars(launch)))


def _jars(launch: Launch) -> list[Path]:
    classes = str(launch.command[launch.command.index("-cp") + 1]).split(os.pathsep)
    return [
        jar
        for part in map(Path, classes)
        for jar in (sorted(part.parent.glob("*.jar")) if part.name == "*" else [part])
    ]


def _name(*known: object) -> str:
    return _PREFIX + hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def _size_and_time(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def _drop_orphans(root: Path) -> None:
    """Archives of virtual environments that are gone would pile up."""
    for entry in root.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if not Path((entry / _OWNER).read_text()).exists():
                shutil.rmtree(entry)


def _run(command: Sequence[str | Path], folder: Path) -> None:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if ran.returncode:
        raise DevStackError(f"`{' '.join(map(str, command))}` failed: {ran.stderr.strip()[-300:]}")


def _with_options(launch: Launch, *options: str) -> Launch:
    java, *rest = launch.command
    return Launch([java, *options, *rest], launch.environment)
