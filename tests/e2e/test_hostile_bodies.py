"""Bodies that misbehave: the worker, its other slot and its leases go on, and each attempt ends with a clear result."""

import signal
from collections.abc import Generator

import pytest

from perago.lake.control import LakeControl
from tests.conftest import Servers
from tests.e2e.worker import Run, Worker, Workplace, eventually, is_running

# Each is rude on its first start only, so that the retry of one that fails can show the recovery.
MOODS = """
def holds_the_gil(notes, workspace, start):
    ctypes.PyDLL(None).sleep(30)


def leaves_a_child(notes, workspace, start):
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    (notes / "child").write_text(str(child))


def dies_and_leaves_a_child(notes, workspace, start):
    if start == 1:
        leaves_a_child(notes, workspace, start)
        os._exit(9)


def forks_and_returns_twice(notes, workspace, start):
    if os.fork():
        os.wait()


def forks_and_exits_in_the_child(notes, workspace, start):
    if os.fork() == 0:
        sys.exit(0)
    os.wait()


def takes_a_gibibyte(notes, workspace, start):
    taken = globals()["taken"] = bytearray(1 << 30)
    taken[:: 4096] = b"x" * len(taken[:: 4096])


def leaves_at_once(notes, workspace, start):
    if start == 1:
        os._exit(7)


def kills_itself(notes, workspace, start):
    if start == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def crashes_in_c(notes, workspace, start):
    if start == 1:
        ctypes.string_at(0)


def exits(notes, workspace, start):
    if start == 1:
        sys.exit(3)


def is_interrupted(notes, workspace, start):
    if start == 1:
        raise KeyboardInterrupt


def raises_a_base_exception(notes, workspace, start):
    class Rude(BaseException):
        def __str__(self):
            raise RuntimeError("no words")

    if start == 1:
        raise Rude


def prints_without_end(notes, workspace, start):
    for _ in range(80):
        print("x" * 999_999)


def logs_without_end(notes, workspace, start):
    for number in range(100_000):
        logging.getLogger("body").info("line %d", number)


def ignores_signals(notes, workspace, start):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(600)


def goes_away(notes, workspace, start):
    os.chdir(workspace)


def closes_everything(notes, workspace, start):
    if start == 1:
        os.closerange(3, 4096)


def closes_its_output(notes, workspace, start):
    os.close(0), os.close(1), os.close(2)
    sys.stdout = None
"""
LEASE = 3
COMPLETED = ["COMPLETED"]


@pytest.fixture(scope="module")
def place(servers: Servers, lake: LakeControl, tmp_path_factory: pytest.TempPathFactory) -> Generator[Workplace]:
    with Workplace.opened(servers, lake, tmp_path_factory.mktemp("hostile"), moods=MOODS, lease=LEASE) as opened:
        yield opened


@pytest.fixture(scope="module")
def worker(place: Workplace) -> Worker:
    """One worker for all of them, at home in a root that is told relative to where it starts."""
    started = place.worker(jobs=2, settings={"PERAGO_WORKSPACE_ROOT": "root"})
    started.ready(2)
    return started


def played(place: Workplace, worker: Worker, mood: str) -> Run:
    """A run of the mood to its end while another runs beside it; both publish once, and nothing is left."""
    run = place.run(mood, mood)
    beside = place.run(branch=f"{mood}-beside")

    def is_over() -> bool:
        run.decide()
        return run.state()["status"] != "RUNNING"

    eventually(is_over, run.shown())
    place.assert_published_once(run, mood)
    place.assert_published_once(beside, f"{mood}-beside")
    assert beside.statuses() == COMPLETED
    assert worker.process.poll() is None
    assert worker.directories() == []
    assert place.site.staging_branches() == []
    return run


@pytest.mark.parametrize(
    "mood",
    [
        "holds_the_gil",
        "forks_and_returns_twice",
        "forks_and_exits_in_the_child",
        "takes_a_gibibyte",
        "goes_away",
        "closes_its_output",
    ],
)
def test_a_rude_body_that_returns_completes_at_the_first_start(place: Workplace, worker: Worker, mood: str) -> None:
    assert played(place, worker, mood).statuses() == COMPLETED


@pytest.mark.parametrize(
    ("mood", "reason"),
    [
        ("leaves_at_once", "executor crash: exit code 7 (slot "),
        ("kills_itself", "executor crash: killed by SIGKILL (slot "),
        ("crashes_in_c", "executor crash: killed by SIGSEGV (slot "),
        ("exits", "SystemExit: 3"),
        ("is_interrupted", "KeyboardInterrupt"),
        ("raises_a_base_exception", "Rude"),
        ("closes_everything", "executor crash: "),
        ("dies_and_leaves_a_child", "executor crash: exit code 9 (slot "),
    ],
)
def test_a_body_that_dies_fails_with_a_clear_reason_and_its_retry_completes(
    place: Workplace, worker: Worker, mood: str, reason: str
) -> None:
    run = played(place, worker, mood)

    assert run.statuses() == ["FAILED", "COMPLETED"]
    assert run.reasons()[0].startswith(reason)
    assert run.tasks()[0]["endTime"] - run.tasks()[0]["startTime"] < 30_000, "told at once, not by a time-out"
    child = run.notes / "child"
    if child.exists():
        assert not is_running(int(child.read_text()))


def test_a_flood_of_output_stays_out_of_the_terminal(place: Workplace, worker: Worker) -> None:
    assert played(place, worker, "prints_without_end").statuses() == COMPLETED

    assert sum(file.stat().st_size for file in worker.logs.rglob("*.out")) > 70_000_000
    assert worker.stderr.stat().st_size < 1_000_000


def test_100_000_log_lines_are_all_kept_with_the_attempts_ids(place: Workplace, worker: Worker) -> None:
    run = played(place, worker, "logs_without_end")

    assert run.statuses() == COMPLETED
    lines = [line for line in worker.lines(workflow=run.workflow_id) if str(line["event"]).startswith("line ")]
    assert len(lines) == 100_000
    assert {line["task_id"] for line in lines} == {run.tasks()[0]["taskId"]}


def test_a_body_that_ignores_signals_is_stopped_with_its_workflow(place: Workplace, worker: Worker) -> None:
    run = place.run("ignores_signals", "ignored")
    executor = run.begun_times(1)

    run.command("DELETE", "")

    eventually(lambda: not is_running(executor), "the executor ends")
    place.assert_published_once(place.run(branch="after-ignored"), "after-ignored")
    assert place.site.head("ignored") == run.state()["input"]["workspace"]["ref"]


def test_a_child_that_outlives_its_body_ends_with_the_worker(place: Workplace, worker: Worker) -> None:
    run = played(place, worker, "leaves_a_child")
    child = int((run.notes / "child").read_text())
    assert run.statuses() == COMPLETED

    worker.signal(signal.SIGTERM)

    assert worker.exit_code() == 0
    eventually(lambda: not is_running(child), "the child ends")
