"""JSON lines for each process of a worker, rotated by size and kept for a time."""

import atexit
import contextlib
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import MutableMapping, Sequence
from datetime import timedelta
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, cast

import structlog

from perago.attempt.log_fields import with_log_fields

_KEPT_FILES = 1000
_UNREAD_LINES = 10_000
_LAST_WORDS_SECONDS = 1.0
# Each line by itself would wake a thread that takes the processor from whoever logs.
_BETWEEN_LINES_SECONDS = 0.02
_STDERR = 2
# A local variable of a frame may be a credential.
_as_dicts = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))

Event = MutableMapping[str, Any]


def log_folder(root: Path, module: str, worker_id: str) -> Path:
    return root / module / f"worker_id={worker_id}"


def configure_logs(folder: Path, name: str, max_bytes: int, retention: timedelta, *, echo: bool) -> None:
    """Send this process's log to `NAME.jsonl`, also what a body logs; `echo` repeats it for people on stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    drop_old(folder, retention)
    told: list[structlog.typing.Processor] = [
        with_log_fields,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _with_traceback,
    ]
    file = _LogFile(folder / f"{name}.jsonl", maxBytes=max_bytes, backupCount=_KEPT_FILES)
    log = _Log(file, _Screen() if echo and sys.stderr is not None else None)  # None where it is closed
    structlog.configure(
        processors=[*told, log.take],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.INFO, handlers=[_FromBodies(told, log)], force=True)


def hold_loggers() -> None:
    """Bind Perago's loggers to the log as it is set up now, for a task may set up structlog for itself."""
    for name, module in list(sys.modules.items()):
        if name.startswith("perago.") and hasattr(module, "_log"):
            module._log.bind()


class _Log:
    """The end of every line. Not one of the standard library's loggers, which a task's module may set up anew."""

    def __init__(self, file: "_LogFile", screen: "_Screen | None") -> None:
        self._file = file
        self._screen = screen
        self._as_json = structlog.processors.JSONRenderer(default=str)

    def take(self, logger: Any, name: str, event: Event) -> str:
        try:
            line = str(self._as_json(logger, name, event))
        except Exception:  # what a body logs may be anything, and no attempt fails for that
            event = {str(key): _told(value) for key, value in event.items()}
            line = str(self._as_json(logger, name, event))
        try:
            self._file.write(line)
        except Exception as error:  # a full disk's, say
            self.say(f"not written to {self._file.baseFilename}: {type(error).__name__}: {error}")
        if self._screen is not None:
            self._screen.show(_for_people(event))
        return ""

    def say(self, trouble: str) -> None:
        """What the log cannot hold goes where nobody waits for it: past the log to people, or to `executor-N.out`."""
        if self._screen is not None:
            self._screen.show(trouble)
        else:
            with contextlib.suppress(Exception):
                sys.stderr.write(f"{trouble}\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk's: a body that sets up logging anew closes this too
            self._file.close()  # which opens again for a line that still comes


class _LogFile(RotatingFileHandler):
    """The standard library's renders each line twice and asks the file system for its size: half of a line's cost."""

    def write(self, line: str) -> None:
        with self.lock or contextlib.nullcontext():
            self.stream = self.stream or self._open()  # None after a rotation that failed, on a full disk say
            if self.stream.tell() + len(line) + 1 > self.maxBytes:
                self.doRollover()
            self.stream.write(line + "\n")
            self.flush()


class _FromBodies(logging.Handler):
    """What the standard library's loggers say is given the same fields, and goes the same way."""

    def __init__(self, way: Sequence[structlog.typing.Processor], log: _Log) -> None:
        super().__init__()
        self._way = [*way, log.take]
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event: Any = {"event": _message(record)}
            if record.exc_info:
                event["exc_info"] = record.exc_info
            for step in self._way:
                event = step(None, record.levelname.lower(), event)
        except Exception as error:
            self._log.say(f"not logged: a line of {record.name}: {type(error).__name__}: {error}")

    def close(self) -> None:
        super().close()
        self._log.close()


class _Screen:
    """Lines for people on stderr. When nobody reads them, lines are left out: they must not hold up a lease."""

    def __init__(self) -> None:
        # Not a `Queue`: a line that is logged while another is put, by the garbage collector say, would wait for ever.
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._said = threading.Event()
        threading.Thread(target=self._print, name="perago-stderr", daemon=True).start()
        atexit.register(self._last_words)

    def show(self, line: str) -> None:
        if self._lines.qsize() < _UNREAD_LINES:
            self._lines.put(line)

    def _print(self) -> None:
        is_over = False
        while not is_over:
            lines = [self._lines.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    lines.append(self._lines.get_nowait())
            is_over = None in lines
            unsaid = "".join(f"{line}\n" for line in lines if line is not None).encode(errors="replace")
            with contextlib.suppress(OSError):
                while unsaid:  # not by way of sys.stderr, whose lock would be held when the process ends
                    unsaid = unsaid[os.write(_STDERR, unsaid) :]
            if not is_over:
                time.sleep(_BETWEEN_LINES_SECONDS)
        self._said.set()

    def _last_words(self) -> None:
        self._lines.put(None)
        self._said.wait(_LAST_WORDS_SECONDS)


def drop_old(folder: Path, retention: timedelta) -> None:
    """Remove what is older than the retention here and in the folders of earlier workers; what is in use stays.

    A worker may be silent for longer than that, so each keeps its own files young by calling this now and then.
    """
    limit = time.time() - retention.total_seconds()
    for file in (*folder.glob("*.jsonl"), *folder.glob("*.out")):
        with contextlib.suppress(OSError):  # it is gone, or somebody else's
            file.touch()
    for file in folder.parent.glob("worker_id=*/*.*"):
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < limit:
                file.unlink()
    for emptied in folder.parent.glob("worker_id=*"):
        if emptied != folder:
            with contextlib.suppress(OSError):  # it is not empty
                emptied.rmdir()


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # its arguments do not fit its text
        return f"{_told(record.msg)} ({type(error).__name__}: {error})"


def _with_traceback(logger: Any, name: str, event: Event) -> Event:
    given: Any = event.get("exc_info")
    # The standard library's loggers give three things.
    raised = cast("tuple[object, ...]", given)[1] if isinstance(given, tuple) else given
    try:
        return _as_dicts(logger, name, event)
    except Exception as error:  # what a body raises may be anything, too
        kind = type(raised) if isinstance(raised, BaseException) else type(error)
        trouble = f"it cannot be shown: {type(error).__name__}"
        return {**event, "exception": [{"exc_type": kind.__name__, "exc_value": trouble, "frames": []}]}


def _told(value: object) -> str | float | None:
    try:
        shown = repr(value)
        return value if value is None or isinstance(value, str | int | float) else shown
    except Exception:
        return f"<a {type(value).__name__} that cannot be shown>"


def _for_people(told: Event) -> str:
    """One short line."""
    rest = " ".join(
        f"{key}={value}"
        for key, value in told.items()
        if key not in ("event", "level", "timestamp", "exception") and value is not None
    )
    return f"{str(told.get('timestamp', ''))[11:19]} {told.get('event')} {rest}".rstrip()
