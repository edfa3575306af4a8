"""A Spark server of one's own: started when it is first needed, again when it has died, ended with its owner."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import Future, wait
from pathlib import Path
from types import TracebackType
from typing import Self

from perago.devstack.archives import with_archive
from perago.devstack.cache import Cache
from perago.devstack.errors import DevStackError
from perago.devstack.processes import LOOPBACK, free_port, start_child
from perago.devstack.progress import Reporter
from perago.devstack.provision import s3a_jars
from perago.devstack.services import spark_launch, spark_ready

_START_SECONDS = 90
_STOP_SECONDS = 5
_LOOK_SECONDS = 0.1
_LOG_TAIL = 3


class EmbeddedSpark:
    """One Spark Connect server on loopback. Nothing is provisioned or started before `url` is asked for.

    `scratch` is its own: emptied before a start, whatever a killed predecessor left there, and removed at the end.
    """

    def __init__(self, log: Path, scratch: Path, memory: str, reporter: Reporter) -> None:
        self._log = log
        self._scratch = scratch
        self._memory = memory
        self._reporter = reporter
        self._only_one = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def url(self) -> str:
        """The address of a server that answers."""
        with self._only_one:
            if self.pid is None or not spark_ready(self._url):
                self._end()
                self._start_beside()
            return self._url

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def stop(self) -> None:
        """For good; a start under way is given up."""
        self._ending.set()
        with self._only_one:
            self._end()
        self._clear()

    def _start_beside(self) -> None:
        """Linux ends the server with the *thread* that started it, so that thread lives as long as the server.

        What it waits for, a download say, may take longer than anybody wants to wait once this is to end.
        """
        started: Future[None] = Future()

        def start() -> None:
            try:
                server = self._start()
            except BaseException as error:
                started.set_exception(error)
            else:
                started.set_result(None)
                server.wait()

        threading.Thread(target=start, name="perago-spark", daemon=True).start()
        while not started.done():
            wait({started}, timeout=_LOOK_SECONDS)
            if self._ending.is_set():
                raise DevStackError("the embedded Spark server was stopped before it was ready")
        started.result()

    def _end(self) -> None:
        if self._process is not None:
            self._kill(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
            self._kill(signal.SIGKILL)
            self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        cache = Cache.of_user(self._reporter)
        jars = s3a_jars(cache)
        port = free_port()
        self._clear()
        self._scratch.mkdir(parents=True)
        if self._ending.is_set():
            raise DevStackError("the embedded Spark server is not started any more")
        launch = with_archive(cache, spark_launch(jars, self._scratch, port, self._memory))
        self._process = start_child(launch.command, launch.environment, self._log, self._scratch)
        self._url = f"sc://{LOOPBACK}:{port}"
        deadline = time.monotonic() + _START_SECONDS
        while not spark_ready(self._url):
            if self._ending.wait(0.05) or self._process.poll() is not None or time.monotonic() > deadline:
                self._kill(signal.SIGKILL)
                raise DevStackError(f"the embedded Spark server did not start (log: {self._log}): {self._last_words()}")
        return self._process

    def _clear(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _kill(self, number: int) -> None:
        """The server and its Python workers."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return " / ".join([line for line in lines if not line.startswith("\tat ")][-_LOG_TAIL:])
