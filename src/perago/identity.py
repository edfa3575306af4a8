"""Processes: told apart from later ones with the same number by when they started, and ended with their parents."""

import ctypes
import os
import signal
import sys
from pathlib import Path

import psutil

_START_TICKS = 19  # of the fields after the command's name in /proc/PID/stat
_SAME_START = 1.0
_PR_SET_PDEATHSIG = 1


def process_start(pid: int) -> float | None:
    """When a process started; None when there is none. Steps of the wall clock do not move it on Linux."""
    try:
        if sys.platform == "linux":
            after_name = Path(f"/proc/{int(pid)}/stat").read_text(errors="replace").rpartition(")")[2].split()
            return int(after_name[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
        return psutil.Process(pid).create_time()
    except (OSError, ValueError, IndexError, OverflowError, psutil.Error):
        return None


def lives(pid: int, started: float) -> bool:
    """Whether the process that started then still works; one that only waits to be reaped does not."""
    now = process_start(pid)
    if now is None or abs(now - started) >= _SAME_START:
        return False
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):
        return False


def end_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends, even one that is stopped or stuck in C."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
