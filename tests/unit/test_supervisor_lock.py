import subprocess
import sys
from pathlib import Path

import pytest

from perago.authoring.errors import RuntimeConfigError
from perago.worker.lock import only_supervisor

HOLD = """
import sys
from pathlib import Path
from perago.worker.lock import only_supervisor

with only_supervisor(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(root: Path) -> "subprocess.Popen[str]":
    """Another process that has the lock until it ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_worker_is_refused_and_told_who_works_there(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        with (
            pytest.raises(RuntimeConfigError, match=rf"process {other.pid}\).*PERAGO_WORKSPACE_ROOT"),
            only_supervisor(tmp_path),
        ):
            pytest.fail("two supervisors in one root")
        other.kill()


def test_a_refusal_does_not_disturb_the_holder(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        for _ in range(2):
            with pytest.raises(RuntimeConfigError, match=f"process {other.pid}"), only_supervisor(tmp_path):
                pytest.fail("two supervisors in one root")
        other.kill()


def test_the_lock_of_a_killed_worker_is_free_at_once(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        other.kill()
        other.wait()

    with only_supervisor(tmp_path):
        assert (tmp_path / ".supervisor.lock").exists()


def test_the_lock_is_free_after_the_block_also_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), only_supervisor(tmp_path):
        raise ZeroDivisionError

    with only_supervisor(tmp_path):
        pass


def test_a_lock_file_of_a_former_container_says_nothing(tmp_path: Path) -> None:
    (tmp_path / ".supervisor.lock").write_text("1")

    with only_supervisor(tmp_path):
        pass


def test_two_roots_have_two_supervisors_and_a_missing_root_is_made(tmp_path: Path) -> None:
    with only_supervisor(tmp_path / "a"), only_supervisor(tmp_path / "new" / "b"):
        assert (tmp_path / "new" / "b").is_dir()
