"""One supervisor per workspace root."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from perago.authoring.errors import RuntimeConfigError


@contextmanager
def only_supervisor(root: Path) -> Generator[None]:
    """Hold the root's lock. The kernel lets go of it with the process, so a crash never leaves it stale."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".supervisor.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise RuntimeConfigError(
                f"another worker (process {lock.read().strip() or 'unknown'}) works in {root}:"
                " give each its own PERAGO_WORKSPACE_ROOT"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
