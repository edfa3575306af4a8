"""A worker's logs, for people: all files of a worker in the order of time."""

import heapq
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

Line = dict[str, Any]
_HIDDEN = {"event", "level", "timestamp", "task_id", "workflow", "execution_id", "exception", "phase"}


def log_files(root: Path) -> list[Path]:
    """Every log file below the root, rotated ones first."""
    return sorted(root.rglob("*.jsonl*"), key=lambda file: (file.stat().st_mtime, file.name))


def read(root: Path, **wanted: str | None) -> Iterator[Line]:
    """All lines in the order of time whose fields are as wanted; a line that is cut off is passed over."""
    merged = heapq.merge(*(_lines(file) for file in log_files(root)), key=lambda line: str(line.get("timestamp")))
    return (line for line in merged if _is_wanted(line, wanted))


def follow(root: Path, **wanted: str | None) -> Iterator[Line]:
    """Lines as they are written from now on."""
    ends = {file: file.stat().st_size for file in log_files(root)}
    while True:
        for file in log_files(root):
            with file.open() as opened:
                opened.seek(ends.get(file, 0))
                for text in opened:
                    if text.endswith("\n"):
                        ends[file] = ends.get(file, 0) + len(text.encode())
                        line = _parsed(text)
                        if line is not None and _is_wanted(line, wanted):
                            yield line
        time.sleep(0.2)


def shown(line: Line) -> str:
    """One line for people; a traceback stands below it."""
    ids = " ".join(str(line[name])[:8] for name in ("workflow", "task_id") if line.get(name))
    rest = " ".join(f"{key}={value}" for key, value in line.items() if key not in _HIDDEN and value is not None)
    head = f"{str(line.get('timestamp'))[:19]} {line.get('level', ''):7} {ids:17} {line.get('phase') or '':10}"
    text = f"{head} {line.get('event')} {rest}".rstrip()
    return text + "".join(f"\n    {entry}" for entry in _traceback(line))


def _traceback(line: Line) -> Iterator[str]:
    for raised in cast("list[Line]", line.get("exception") or []):
        for frame in cast("list[Line]", raised.get("frames") or []):
            yield f"{frame.get('filename')}:{frame.get('lineno')} in {frame.get('name')}"
        yield f"{raised.get('exc_type')}: {raised.get('exc_value')}"


def _lines(file: Path) -> Iterator[Line]:
    with file.open(errors="replace") as opened:
        for text in opened:
            line = _parsed(text)
            if line is not None:
                yield line


def _parsed(text: str) -> Line | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return cast("Line", line) if isinstance(line, dict) else None


def _is_wanted(line: Line, wanted: dict[str, str | None]) -> bool:
    return all(value is None or line.get(name) == value for name, value in wanted.items())
