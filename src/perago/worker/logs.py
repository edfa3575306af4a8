"""JSON lines for each process of a worker, rotated by size and kept for a time."""

import logging
import sys
import time
from datetime import timedelta
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import structlog

_KEPT_FILES = 1000


def log_folder(root: Path, module: str, worker_id: str) -> Path:
    return root / module / f"worker_id={worker_id}"


def configure_logs(folder: Path, name: str, max_bytes: int, retention: timedelta, *, echo: bool) -> None:
    """Send this process's structured log to `NAME.jsonl`; `echo` repeats warnings for people on stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    drop_old(folder, retention)
    file = RotatingFileHandler(folder / f"{name}.jsonl", maxBytes=max_bytes, backupCount=_KEPT_FILES)
    handlers: list[logging.Handler] = [file]
    if echo:
        screen = logging.StreamHandler(sys.stderr)
        screen.setFormatter(_ForPeople())
        handlers.append(screen)
    logging.basicConfig(level=logging.INFO, handlers=handlers, format="%(message)s", force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def drop_old(folder: Path, retention: timedelta) -> None:
    """Remove rotated files older than the retention; the one in use never is."""
    limit = time.time() - retention.total_seconds()
    for file in folder.glob("*.jsonl.*"):
        if file.stat().st_mtime < limit:
            file.unlink(missing_ok=True)


class _ForPeople(logging.Formatter):
    """One short line out of a JSON line."""

    def format(self, record: logging.LogRecord) -> str:
        import json

        try:
            told: dict[str, Any] = json.loads(record.getMessage())
        except ValueError:
            return record.getMessage()
        rest = " ".join(
            f"{key}={value}"
            for key, value in told.items()
            if key not in ("event", "level", "timestamp", "exception") and value is not None
        )
        return f"{told.get('timestamp', '')[11:19]} {told.get('event')} {rest}".rstrip()
