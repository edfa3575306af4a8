"""JSON lines for each process of a worker, rotated by size and kept for a time."""

import contextlib
import logging
import sys
import time
from collections.abc import MutableMapping
from datetime import timedelta
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import structlog
from structlog.stdlib import ProcessorFormatter

_KEPT_FILES = 1000
# A local variable of a frame may be a credential.
_WITHOUT_LOCALS = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)


def log_folder(root: Path, module: str, worker_id: str) -> Path:
    return root / module / f"worker_id={worker_id}"


def configure_logs(folder: Path, name: str, max_bytes: int, retention: timedelta, *, echo: bool) -> None:
    """Send this process's log to `NAME.jsonl`, also what a body logs; `echo` repeats it for people on stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    drop_old(folder, retention)
    told: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(_WITHOUT_LOCALS),
    ]
    file = _LogFile(folder / f"{name}.jsonl", maxBytes=max_bytes, backupCount=_KEPT_FILES)
    file.setFormatter(_formatter(told, structlog.processors.JSONRenderer(default=str)))
    handlers: list[logging.Handler] = [file]
    if echo:
        screen = logging.StreamHandler(sys.stderr)
        screen.setFormatter(_formatter(told, _for_people))
        handlers.append(screen)
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
    structlog.configure(
        processors=[*told, ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


class _LogFile(RotatingFileHandler):
    """The standard library's renders each line twice and asks the file system for its size: half of a line's cost."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + self.terminator
            self.stream = self.stream or self._open()  # None after a rotation that failed, on a full disk say
            if self.stream.tell() + len(line) > self.maxBytes:
                self.doRollover()
            self.stream.write(line)
            self.flush()
        except Exception:
            self.handleError(record)


def _formatter(told: list[structlog.typing.Processor], last: structlog.typing.Processor) -> logging.Formatter:
    """What the standard library's loggers say is given the same fields first."""
    return ProcessorFormatter(foreign_pre_chain=told, processors=[ProcessorFormatter.remove_processors_meta, last])


def drop_old(folder: Path, retention: timedelta) -> None:
    """Remove what is older than the retention here and in the folders of earlier workers; what is in use stays.

    A worker may be silent for longer than that, so each keeps its own files young by calling this now and then.
    """
    limit = time.time() - retention.total_seconds()
    for file in (*folder.glob("*.jsonl"), *folder.glob("*.out")):
        with contextlib.suppress(FileNotFoundError):
            file.touch()
    for file in folder.parent.glob("worker_id=*/*.*"):
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_mtime < limit:
                file.unlink()
    for emptied in folder.parent.glob("worker_id=*"):
        if emptied != folder:
            with contextlib.suppress(OSError):  # it is not empty
                emptied.rmdir()


def _for_people(_: Any, __: str, told: MutableMapping[str, Any]) -> str:
    """One short line."""
    rest = " ".join(
        f"{key}={value}"
        for key, value in told.items()
        if key not in ("event", "level", "timestamp", "exception") and value is not None
    )
    return f"{str(told.get('timestamp', ''))[11:19]} {told.get('event')} {rest}".rstrip()
