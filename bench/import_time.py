"""What a task author's `import perago` costs, beside an empty interpreter and pydantic alone."""

import subprocess
import sys
import time
from functools import partial
from statistics import median

from bench.table import Row, alternating

STATEMENTS = {
    "empty interpreter": "pass",
    "import pydantic.BaseModel": "from pydantic import BaseModel",
    "import perago": "import perago",
    "from perago import task, WorkspaceSpec": "from perago import task, WorkspaceSpec",
}


def rows() -> list[Row]:
    taken = alternating({name: partial(_run, statement) for name, statement in STATEMENTS.items()}, rounds=7)
    base = median(taken["empty interpreter"])
    return [Row(name, seconds, "empty interpreter", median(seconds) / base) for name, seconds in taken.items()]


def _run(statement: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - started
