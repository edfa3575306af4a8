"""A worker's logs, for people: all files of a worker in the order of time."""

import heapq
import json
import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any, cast

Line = dict[str, Any]
Inode = tuple[int, int]
_HIDDEN = {"event", "level", "timestamp", "task_id", "workflow", "execution_id", "exception", "phase"}
_PAUSE = 0.2


def read(root: Path, **wanted: str | None) -> Iterator[Line]:
    """All lines in the order of time whose fields are as wanted; a line that is cut off is passed over."""
    tail = _Tail()
    passes = (tail.lines(root) for _ in range(2))  # the second finds what was rotated away under the first
    return (line for line in chain.from_iterable(passes) if _is_wanted(line, wanted))


def follow(root: Path, **wanted: str | None) -> Iterator[Line]:
    """All lines, then those that are written from now on."""
    tail = _Tail()
    while True:
        yield from (line for line in tail.lines(root) if _is_wanted(line, wanted))
        time.sleep(_PAUSE)


class _Tail:
    """Reads every file on from where it was left; one that was rotated meanwhile is known by its inode."""

    def __init__(self) -> None:
        self._ends: dict[Inode, int] = {}

    def lines(self, root: Path) -> Iterator[Line]:
        """What is new since the last call, in the order of time."""
        files: dict[Inode, Path] = {}
        for file in sorted(root.rglob("*.jsonl*")):
            with suppress(FileNotFoundError):  # rotated or dropped just now
                files.setdefault(_inode(file.stat()), file)
        return heapq.merge(*map(self._new, files.values(), files), key=lambda line: str(line.get("timestamp")))

    def _new(self, file: Path, inode: Inode) -> Iterator[Line]:
        """A file's new lines. It is closed between the first and the second: thousands may wait for their turn."""
        with closing(self._rest(file, inode)) as lines:
            first = next(lines, None)
        if first is not None:
            yield first
            yield from self._rest(file, inode)

    def _rest(self, file: Path, inode: Inode) -> Generator[Line]:
        with suppress(FileNotFoundError), file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if _inode(status) != inode:  # rotated just now, and met again the next time
                return
            end = self._ends.get(inode, 0)
            self._ends[inode] = opened.seek(end if end <= status.st_size else 0)
            for text in opened:
                if not text.endswith(b"\n"):
                    return
                self._ends[inode] += len(text)
                line = _parsed(text)
                if line is not None:
                    yield line


def _inode(status: os.stat_result) -> Inode:
    return status.st_dev, status.st_ino


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


def _parsed(text: bytes) -> Line | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return cast("Line", line) if isinstance(line, dict) else None


def _is_wanted(line: Line, wanted: dict[str, str | None]) -> bool:
    return all(value is None or line.get(name) == value for name, value in wanted.items())
