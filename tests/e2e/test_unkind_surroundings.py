"""The installed command where files, disks, readers and people are not as it would like them; no server is asked."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import IO

import pytest

from tests.conftest import Perago
from tests.e2e.worker import heed_interrupts

COMMAND = Path(sys.executable).with_name("perago")
WAITING = """
import time
from pydantic import BaseModel
from perago import task

class Nothing(BaseModel):
    pass

@task(name="waits", owner_email="data@example.com")
def wait(params: Nothing) -> Nothing:
    print("begun", flush=True)
    time.sleep(600)
    return params
"""


def started(folder: Path, *arguments: str, stdout: int | IO[bytes] = subprocess.PIPE) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [COMMAND, *arguments],
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


@pytest.mark.parametrize("command", ["up", "status", "env", "down"])
def test_a_file_in_the_place_of_a_folder_is_named_in_one_line(perago: Perago, tmp_path: Path, command: str) -> None:
    (tmp_path / "taken").write_text("in the way")

    refused = perago("dev", command, "--data-dir", "taken")

    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"error: {tmp_path / 'taken'}")
    assert " cannot be used: " in line


@pytest.mark.parametrize("command", [("fence", "any"), ("gc", "any")], ids=["fence", "gc"])
def test_a_lakefs_that_is_down_is_told_in_one_line(perago: Perago, command: tuple[str, ...]) -> None:
    nowhere = "http://127.0.0.1:9"
    settings = {
        "CONDUCTOR_SERVER_URL": nowhere,
        "LAKECTL_SERVER_ENDPOINT_URL": nowhere,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "key",
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "secret",
    }

    refused = perago(*command, env=settings)

    assert (refused.returncode, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith("error: lakeFS gave no answer while ")
    assert "check LAKECTL_SERVER_ENDPOINT_URL" in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        told = started(tmp_path, "fence", "any", "--show", stdout=full)
        _, errors = told.communicate(timeout=60)

    assert (told.returncode, errors) == (1, "error: No space left on device\n")


def test_a_reader_that_has_gone_is_no_error_to_speak_of(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with closing(os.fdopen(writing, "wb")) as pipe:
        told = started(tmp_path, "fence", "any", "--show", stdout=pipe)
        _, errors = told.communicate(timeout=60)

    assert (told.returncode, errors) == (1, "")


def test_ctrl_c_ends_a_run_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(WAITING)
    running = started(tmp_path, "run", "waits")
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"

    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)

    assert (running.returncode, errors) == (130, "")
