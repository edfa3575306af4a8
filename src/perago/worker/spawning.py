"""Fresh processes for user code: nothing of the supervisor's threads, sockets and locks is in them."""

import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from typing import Any


def spawned(target: Callable[..., None], *given: Any, daemon: bool = False) -> SpawnProcess:
    """Run a function of this package in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=given, daemon=daemon)
    # Where `__main__` is a file, multiprocessing runs it again in the child: for us that is the whole command line.
    main = vars(sys.modules["__main__"])
    file = main.pop("__file__", None)
    try:
        process.start()
    finally:
        if file is not None:
            main["__file__"] = file
    return process
