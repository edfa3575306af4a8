"""One real attempt in a process of its own: `python -m bench.attempt JOB.json` prints its times and peak memory."""

import json
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from pydantic import BaseModel

from perago.attempt.lifecycle import Completed, Execution, Servers, run_attempt
from perago.authoring.task import definition_of, task
from perago.authoring.workspace import WorkspaceSpec
from perago.config import load_runtime_config
from perago.data.workspace import DirectoryFiles
from perago.lake.control import LakeControl
from perago.lake.objects import LakeObjects
from perago.protocol.attempt import Attempt


class Job(BaseModel):
    """What the body does: take a tree in by hard links, and write some files anew."""

    repository: str
    ref: str
    tree: str | None = None
    rewrite_every: int = 0


class Result(BaseModel):
    files: int


class Everything:
    def current(self, attempt: Attempt) -> Attempt:
        return replace(attempt)


clock: dict[str, float] = {}


@task(name="bench.attempt", owner_email="bench@example.com", workspace=WorkspaceSpec(prefix="/bench"))
def body(workspace: Path, params: Job) -> Result:
    clock["body began"] = time.perf_counter()
    if params.tree:
        subprocess.run(["cp", "-rl", f"{params.tree}/.", workspace], check=True)
    files = 0
    if params.rewrite_every:
        for number, file in enumerate(sorted(workspace.rglob("*.bin"))):
            files += 1
            if number % params.rewrite_every == 0:
                content = bytes(reversed(file.read_bytes()))
                file.unlink()
                file.write_bytes(content + uuid.uuid4().bytes)
    clock["body ended"] = time.perf_counter()
    return Result(files=files)


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    job = Job.model_validate_json(Path(sys.argv[1]).read_text())
    address = load_runtime_config().require_lakefs()
    servers = Servers(Everything(), LakeControl(*address), DirectoryFiles(LakeObjects(*address)))
    workspace = {"repository": job.repository, "branch": "main", "ref_type": "commit", "ref": job.ref}
    definition = definition_of(body)
    assert definition is not None
    payload: dict[str, Any] = {"workspace": workspace, "params": job.model_dump()}
    attempt = Attempt("bench", uuid.uuid4().hex, 0, "bench", 1, 0, "IN_PROGRESS")
    began = time.perf_counter()
    outcome = run_attempt(Execution(definition, attempt, uuid.uuid4().hex, payload), servers, Path(sys.argv[2]))
    ended = time.perf_counter()
    assert isinstance(outcome, Completed), outcome
    told = {
        "before body": clock["body began"] - began,
        "after body": ended - clock["body ended"],
        "ref": outcome.output["workspace"]["ref"],
        "peak_mib": peak_mib(),
    }
    print(json.dumps(told))


def peak_mib() -> float:
    """Of this process alone: getrusage's figure begins with that of the process that started it."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
