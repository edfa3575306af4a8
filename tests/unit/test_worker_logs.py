"""The worker's logs: JSON lines that are rotated, kept for a time, and read again by people."""

import json
import logging
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from datetime import timedelta
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import structlog

from perago.attempt import log_fields as log_fields_module
from perago.attempt.log_fields import log_fields, set_log_field, share_log_fields
from perago.worker import reading
from perago.worker.logs import configure_logs, drop_old, log_folder

MONTH = timedelta(days=30)


@pytest.fixture(autouse=True)
def logging_as_before() -> Generator[None]:
    root = logging.getLogger()
    handlers, level, httpx_level = root.handlers[:], root.level, logging.getLogger("httpx").level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("httpx").setLevel(httpx_level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def configured(folder: Path, *, max_bytes: int = 1_000_000, echo: bool = False) -> Any:
    configure_logs(folder, "executor-0", max_bytes, MONTH, echo=echo)
    return structlog.get_logger("test")


def lines_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def written(file: Path, *lines: dict[str, Any] | str) -> Path:
    """Add lines to a log file; text is written as it is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        for line in lines:
            opened.write(line if isinstance(line, str) else json.dumps(line) + "\n")
    return file


def at(second: int, event: str, **fields: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-11-16T10:00:{second:02}.000000Z", "level": "info", "event": event, **fields}


def events(lines: Iterator[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in lines]


def test_each_line_is_json_with_time_level_and_what_is_bound(tmp_path: Path) -> None:
    log = configured(tmp_path)

    with log_fields(task_id="t-1", workflow="w-1", phase="body"):
        log.info("downloaded", objects=3)
    log.warning("afterwards")

    within, after = lines_in(tmp_path / "executor-0.jsonl")
    assert within.pop("timestamp").endswith("Z")
    bound = {"task_id": "t-1", "workflow": "w-1", "phase": "body"}
    assert within == {"event": "downloaded", "level": "info", "objects": 3, **bound}
    assert (after["event"], after["level"], after.get("phase")) == ("afterwards", "warning", None)


def test_what_a_body_logs_in_its_own_way_is_a_line_with_the_same_ids(tmp_path: Path) -> None:
    configured(tmp_path)

    with log_fields(task_id="t-1", phase="body"):
        logging.getLogger("an.author").warning("read %d rows\nof many", 7)

    (line,) = lines_in(tmp_path / "executor-0.jsonl")
    assert (line["event"], line["level"]) == ("read 7 rows\nof many", "warning")
    assert (line["task_id"], line["phase"]) == ("t-1", "body")
    assert line["timestamp"]


def test_a_traceback_of_either_kind_of_logger_is_part_of_its_line(tmp_path: Path) -> None:
    log = configured(tmp_path)

    try:
        raise ValueError("no rows")
    except ValueError as error:
        log.error("attempt failed", exc_info=error)
        logging.getLogger("an.author").exception("mine")

    for line in lines_in(tmp_path / "executor-0.jsonl"):
        (raised,) = line["exception"]
        assert (raised["exc_type"], raised["exc_value"]) == ("ValueError", "no rows")
        assert raised["frames"][-1]["name"] == "test_a_traceback_of_either_kind_of_logger_is_part_of_its_line"


def test_a_value_json_does_not_know_is_written_as_text(tmp_path: Path) -> None:
    configured(tmp_path).info("collected", directory=Path("/a/b"))

    assert lines_in(tmp_path / "executor-0.jsonl")[0]["directory"] == "/a/b"


def test_people_get_one_short_line_on_stderr_where_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    configured(tmp_path / "quiet").warning("unseen")
    configured(tmp_path / "told", echo=True).warning("poll failed", times=2, nothing=None)

    told = ""
    while not told.endswith("\n"):
        told += capfd.readouterr().err
    assert "unseen" not in told
    assert told.splitlines()[0][8:] == " poll failed times=2"


def test_a_file_is_rotated_by_size_and_no_line_is_lost(tmp_path: Path) -> None:
    log = configured(tmp_path, max_bytes=2000)

    for number in range(100):
        log.info("line", number=number)

    files = sorted(tmp_path.iterdir())
    assert len(files) > 2
    assert all(file.stat().st_size <= 2000 for file in files)
    assert [line["number"] for line in reading.read(tmp_path)] == list(range(100))


def test_rotated_files_are_kept_for_the_retention_and_the_one_in_use_for_ever(tmp_path: Path) -> None:
    folder = log_folder(tmp_path, "tasks.build", "w-1")
    in_use = aged(written(folder / "executor-0.jsonl", at(1, "in use")), days=90)
    old = aged(written(folder / "executor-0.jsonl.2", at(1, "old")), days=31)
    young = aged(written(folder / "executor-0.jsonl.1", at(1, "young")), days=29)

    drop_old(folder, MONTH)

    assert (in_use.exists(), old.exists(), young.exists()) == (True, False, True)


def test_the_logs_of_workers_that_ended_long_ago_are_dropped_with_their_folders(tmp_path: Path) -> None:
    own = log_folder(tmp_path, "tasks.build", "now")
    own.mkdir(parents=True)
    for name in ("supervisor.jsonl", "executor-0.jsonl.1", "executor-0.out"):
        aged(written(log_folder(tmp_path, "tasks.build", "long-ago") / name, at(1, "x")), days=31)
    recent = aged(written(log_folder(tmp_path, "tasks.build", "lately") / "supervisor.jsonl", at(1, "x")), days=29)
    stranger = aged(written(tmp_path / "tasks.build" / "notes" / "kept.jsonl", at(1, "x")), days=90)

    drop_old(own, MONTH)

    assert not log_folder(tmp_path, "tasks.build", "long-ago").exists()
    assert own.is_dir()
    assert recent.exists()
    assert stranger.exists()


def test_a_worker_that_is_silent_for_long_keeps_its_log_from_a_new_neighbour(tmp_path: Path) -> None:
    silent = log_folder(tmp_path, "tasks.build", "silent")
    log = aged(written(silent / "supervisor.jsonl", at(1, "polling")), days=90)
    neighbour = log_folder(tmp_path, "tasks.build", "new")
    neighbour.mkdir(parents=True)

    drop_old(silent, MONTH)
    drop_old(neighbour, MONTH)

    assert log.exists()


def aged(file: Path, days: int) -> Path:
    then = time.time() - timedelta(days=days).total_seconds()
    os.utime(file, (then, then))
    return file


def test_files_are_read_as_one_in_the_order_of_time(tmp_path: Path) -> None:
    written(tmp_path / "m" / "supervisor.jsonl", at(1, "assigned"), at(4, "attempt ended"))
    written(tmp_path / "m" / "executor-0.jsonl.1", at(2, "attempt started"))
    written(tmp_path / "m" / "executor-0.jsonl", at(3, "result"))

    assert events(reading.read(tmp_path)) == ["assigned", "attempt started", "result", "attempt ended"]


def test_only_the_lines_of_the_task_and_workflow_wanted_are_read(tmp_path: Path) -> None:
    lines = [at(1, "a", task_id="t-1", workflow="w-1"), at(2, "b", task_id="t-2", workflow="w-1"), at(3, "c")]
    written(tmp_path / "executor-0.jsonl", *lines)

    assert events(reading.read(tmp_path, task_id="t-1", workflow=None)) == ["a"]
    assert events(reading.read(tmp_path, task_id=None, workflow="w-1")) == ["a", "b"]
    assert events(reading.read(tmp_path, task_id="t-1", workflow="w-2")) == []


def test_cut_off_lines_and_foreign_text_are_passed_over(tmp_path: Path) -> None:
    file = written(tmp_path / "executor-0.jsonl", at(1, "whole"), '{"timestamp": "2026-', "\n", "plain\n", "[1]\n")
    with file.open("ab") as opened:
        opened.write(b"\xff\xfe\n")
    written(file, at(2, "whole too"), '{"event": "cut')

    assert events(reading.read(tmp_path)) == ["whole", "whole too"]


def followed(root: Path, **wanted: str | None) -> "Queue[str]":
    heard: Queue[str] = Queue()

    def listen() -> None:
        for line in reading.follow(root, **wanted):
            heard.put(line["event"])

    threading.Thread(target=listen, daemon=True).start()
    return heard


def test_following_gives_what_is_there_and_then_new_lines_of_old_and_new_files(tmp_path: Path) -> None:
    file = written(tmp_path / "supervisor.jsonl", at(1, "before"))
    heard = followed(tmp_path)
    assert heard.get(timeout=30) == "before"

    written(file, at(2, "after"))
    assert heard.get(timeout=30) == "after"
    written(tmp_path / "executor-0.jsonl", at(3, "another file"))
    assert heard.get(timeout=30) == "another file"


def test_following_waits_for_the_rest_of_a_line(tmp_path: Path) -> None:
    whole = json.dumps(at(1, "grün"), ensure_ascii=False)
    file = written(tmp_path / "supervisor.jsonl", at(0, "first"), whole[:-3])
    heard = followed(tmp_path)
    assert heard.get(timeout=30) == "first"

    written(file, whole[-3:] + "\n", at(2, "next"))

    assert [heard.get(timeout=30), heard.get(timeout=30)] == ["grün", "next"]


def test_following_goes_over_a_rotation_without_a_gap_or_a_repetition(tmp_path: Path) -> None:
    file = written(tmp_path / "supervisor.jsonl", at(1, "one"), at(2, "two"))
    heard = followed(tmp_path)
    assert [heard.get(timeout=30), heard.get(timeout=30)] == ["one", "two"]

    written(file, at(3, "three"))
    file.rename(tmp_path / "supervisor.jsonl.1")
    written(file, at(4, "four"))

    assert [heard.get(timeout=30), heard.get(timeout=30)] == ["three", "four"]
    written(file, at(5, "five"))
    assert heard.get(timeout=30) == "five"


def test_following_hears_only_what_is_wanted(tmp_path: Path) -> None:
    file = written(tmp_path / "supervisor.jsonl", at(1, "mine", task_id="t-1"))
    heard = followed(tmp_path, task_id="t-1")
    assert heard.get(timeout=30) == "mine"

    written(file, at(2, "not mine", task_id="t-2"), at(3, "mine again", task_id="t-1"))

    assert heard.get(timeout=30) == "mine again"


def test_a_line_is_shown_with_short_ids_its_phase_and_its_fields() -> None:
    ids = {"workflow": "0123456789abcdef", "task_id": "fedcba9876543210"}

    shown = reading.shown(at(1, "phase ended", phase="download", seconds=0.5, reason=None, **ids))

    assert shown.split() == (
        ["2026-11-16T10:00:01", "info", "01234567", "fedcba98", "download", "phase", "ended", "seconds=0.5"]
    )


def test_a_traceback_is_shown_below_its_line() -> None:
    frames = [{"filename": "/tasks/build.py", "lineno": 7, "name": "build"}]
    raised = {"exc_type": "ValueError", "exc_value": "no rows", "frames": frames}

    shown = reading.shown(at(1, "attempt failed", exception=[raised])).splitlines()

    assert shown[0].endswith("attempt failed")
    assert shown[1:] == ["    /tasks/build.py:7 in build", "    ValueError: no rows"]


RUDE = """
import logging, logging.config, sys
from datetime import timedelta
from pathlib import Path
import structlog
import perago.worker.executor
from perago.attempt import lifecycle
from perago.worker.logs import configure_logs, hold_loggers
configure_logs(Path(sys.argv[1]), "executor-0", 10**8, timedelta(days=1), echo=False)
hold_loggers()
logging.config.dictConfig({"version": 1, "root": {"level": "ERROR", "handlers": []}})
logging.basicConfig(level=logging.ERROR, handlers=[logging.NullHandler()], force=True)
logging.disable(logging.CRITICAL)
structlog.configure(processors=[structlog.processors.KeyValueRenderer()], logger_factory=structlog.PrintLoggerFactory())
lifecycle._log.error("attempt failed")
structlog.get_logger("an.author").info("mine")
"""


def test_a_task_that_sets_up_logging_for_itself_takes_nothing_out_of_the_log(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", RUDE, tmp_path], capture_output=True, text=True, check=True)

    assert [line["event"] for line in lines_in(tmp_path / "executor-0.jsonl")] == ["attempt failed"]
    assert ran.stdout == "event='mine'\n"


class Detached:
    def __repr__(self) -> str:
        raise RuntimeError("a row that is no longer there")


@pytest.mark.parametrize(
    "value",
    [{(2024, 1): 5}, Detached(), lambda: None, 10**5000],
    ids=["a key", "a row", "a function", "too many digits"],
)
def test_a_value_that_cannot_be_written_fails_nobody(tmp_path: Path, value: object) -> None:
    configured(tmp_path).info("counted", value=value, rows=3)

    (line,) = lines_in(tmp_path / "executor-0.jsonl")
    assert (line["event"], line["rows"]) == ("counted", 3)


class LazyError(Exception):
    def __bool__(self) -> bool:
        raise RuntimeError("ask the database")


def chained() -> Exception:
    error = ValueError("no rows")
    error.__cause__ = LazyError()
    return error


def with_odd_notes() -> Exception:
    error = ValueError("no rows")
    error.__notes__ = None  # type: ignore[assignment] # which Python allows
    return error


@pytest.mark.parametrize("odd", [chained, with_odd_notes])
def test_an_exception_that_cannot_be_written_fails_nobody(tmp_path: Path, odd: Callable[[], Exception]) -> None:
    log = configured(tmp_path)
    log.error("attempt failed", exc_info=odd(), rows=3)
    try:
        raise odd()
    except ValueError:
        logging.getLogger("an.author").exception("mine")

    lines = lines_in(tmp_path / "executor-0.jsonl")
    assert [(line["event"], line.get("rows")) for line in lines] == [("attempt failed", 3), ("mine", None)]
    assert all("ValueError: it cannot be shown" in reading.shown(line) for line in lines)


def test_a_body_that_clears_or_binds_a_context_changes_no_ids(tmp_path: Path) -> None:
    log = configured(tmp_path)

    with log_fields(task_id="t-1", phase="start"):
        set_log_field("phase", "body")
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(task_id="mine", customer="c-1")
        log.info("counted")
    log.info("afterwards")

    within, after = lines_in(tmp_path / "executor-0.jsonl")
    assert (within["task_id"], within["phase"], within["customer"]) == ("t-1", "body", "c-1")
    assert (after["task_id"], after.get("phase")) == ("mine", None)


@pytest.fixture
def executor_process() -> Generator[None]:
    share_log_fields()
    yield
    log_fields_module._of_the_process.clear()


def test_what_a_body_calls_by_the_same_name_is_kept_under_another(tmp_path: Path) -> None:
    log = configured(tmp_path)

    with log_fields(task_id="t-1", phase="body", seq=None):
        log.info("trained", phase="epochs", task_id="mine", rows=3)

    (line,) = lines_in(tmp_path / "executor-0.jsonl")
    assert (line["task_id"], line["phase"]) == ("t-1", "body")
    assert "body_seq" not in line
    assert (line["body_task_id"], line["body_phase"], line["rows"]) == ("mine", "epochs", 3)


@pytest.mark.usefixtures("executor_process")
def test_a_thread_of_a_body_logs_lines_of_its_attempt_and_of_no_later_one(tmp_path: Path) -> None:
    log = configured(tmp_path)

    def logged_by_a_thread(event: str) -> None:
        thread = threading.Thread(target=log.info, args=[event])
        thread.start()
        thread.join()

    with log_fields(task_id="t-1", phase="start"):
        set_log_field("phase", "body")
        logged_by_a_thread("within")
    logged_by_a_thread("afterwards")

    within, after = lines_in(tmp_path / "executor-0.jsonl")
    assert (within["task_id"], within["phase"]) == ("t-1", "body")
    assert "task_id" not in after


def test_a_value_that_holds_itself_fails_nobody(tmp_path: Path) -> None:
    value: list[object] = []
    value.append(value)

    configured(tmp_path, echo=True).info("counted", value=value)

    assert len(lines_in(tmp_path / "executor-0.jsonl")) == 1


def test_a_line_whose_arguments_do_not_fit_is_logged_as_far_as_it_goes(tmp_path: Path) -> None:
    configured(tmp_path)
    logging.getLogger("a.library").warning("%d rows", "many")

    (line,) = lines_in(tmp_path / "executor-0.jsonl")
    assert line["event"].startswith("%d rows (TypeError: ")


def test_a_full_disk_is_told_to_people_and_holds_up_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "executor-0.jsonl").symlink_to("/dev/full")
    configured(tmp_path).info("counted")
    logging.getLogger("a.library").warning("careful")

    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("not written to ")]
    assert len(said) == 2
    assert all("No space left on device" in line for line in said)


def test_lines_for_people_that_nobody_reads_hold_up_nothing(tmp_path: Path) -> None:
    program = f"""
from datetime import timedelta
from pathlib import Path
import structlog
from perago.worker.logs import configure_logs
configure_logs(Path({str(tmp_path)!r}), "supervisor", 10**8, timedelta(days=1), echo=True)
for number in range(20_000):
    structlog.get_logger().info("line", number=number)
print("done", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        too_long = threading.Timer(60, process.kill)
        too_long.start()
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        assert process.wait() == 0  # although its stderr is full to this day
        too_long.cancel()

    assert len(lines_in(tmp_path / "supervisor.jsonl")) == 20_000


def test_where_stderr_is_closed_nothing_is_written_to_the_file_that_has_its_place(tmp_path: Path) -> None:
    program = f"""
import os
from datetime import timedelta
from pathlib import Path
import structlog
from perago.worker.logs import configure_logs
assert os.open({str(tmp_path / "lock")!r}, os.O_RDWR | os.O_CREAT) == 2
configure_logs(Path({str(tmp_path)!r}), "supervisor", 10**8, timedelta(days=1), echo=True)
structlog.get_logger().info("line")
"""
    subprocess.run(["/bin/sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, program], check=True)

    assert [line["event"] for line in lines_in(tmp_path / "supervisor.jsonl")] == ["line"]
    assert (tmp_path / "lock").read_bytes() == b""


def test_what_cannot_be_dropped_keeps_nobody_from_starting(tmp_path: Path) -> None:
    own = log_folder(tmp_path, "tasks.build", "now")
    strange = log_folder(tmp_path, "tasks.build", "long-ago") / "cannot.unlink"
    strange.mkdir(parents=True)
    aged(strange, days=31)

    configured(own).info("started")

    assert strange.exists()
    assert lines_in(own / "executor-0.jsonl")[0]["event"] == "started"


def test_more_files_are_read_than_may_be_open_at_once(tmp_path: Path) -> None:
    for number in range(400):
        lines = [at(0, "line", number=number, timestamp=f"{number:04}.{part}") for part in range(3)]
        written(tmp_path / f"worker_id={number}" / "executor-0.jsonl", *lines)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        told = [line["timestamp"] for line in reading.read(tmp_path)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert told == [f"{number:04}.{part}" for number in range(400) for part in range(3)]
