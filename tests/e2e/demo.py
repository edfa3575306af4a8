"""`perago demo` as a process, and what it has to tell."""

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import bare_environment
from tests.e2e.worker import heed_interrupts

COMMAND = Path(sys.executable).with_name("perago")


def demo(folder: Path, output: Path, *arguments: str, **variables: str) -> "subprocess.Popen[bytes]":
    with output.open("wb") as file:
        return subprocess.Popen(
            [COMMAND, "demo", "--rows", "20000", *arguments],
            cwd=folder,
            env=bare_environment(**variables, PYTHONUNBUFFERED="1"),
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=heed_interrupts,
        )


def section(shown: str, number: int) -> str:
    """One run of the pipeline as the demo tells it."""
    return re.split(r"^\d\. |^Done", shown, flags=re.MULTILINE)[number]


def attempts(told: str) -> list[tuple[str, ...]]:
    return re.findall(r"^ +[\d.]+ s  (\w+) +attempt (\d)  (\w+)$", told, flags=re.MULTILINE)


def published(told: str) -> list[str]:
    """The tasks of the commits shown, the newest first, down to where the branch was before."""
    return re.findall(r"^  [0-9a-f]{12}  (\S+?)(?:: | it was before$)", told, flags=re.MULTILINE)


def check_whole(shown: str) -> None:
    """The pipeline published, was stopped by a guardrail, and recovered from kills."""
    assert "the workflow's wiring: right" in shown
    well, stopped, recovered = (section(shown, number) for number in (1, 2, 3))

    everything = ["orders.report", "orders.clean", "orders.ingest", "where"]
    assert attempts(well) == [(task, "1", "COMPLETED") for task in ("ingest", "clean", "report")]
    first = "(download|body)"  # what took no time is not shown, as the download of an empty branch or a quick merge
    for task, phase in (("orders.ingest", first), ("orders.clean", first), ("", "body"), ("", "post")):
        assert re.search(rf"^{task} +{phase} +[\d.]+ s +[\d.]+ s", well, flags=re.MULTILINE), well
    assert published(well) == everything
    assert "20,000 orders" in well
    chart = re.search(r"saved as (.+\.png)", well)
    assert chart is not None
    assert Path(chart[1]).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")

    assert attempts(stopped) == [("ingest", "1", "COMPLETED"), ("clean", "1", "FAILED"), ("clean", "2", "FAILED")]
    assert "workflow FAILED" in stopped
    assert "post guardrail require_table('clean/orders'" in stopped
    assert "amount >= 0" in stopped
    assert published(stopped) == ["orders.ingest", "where"]
    assert "clean/: 0 files differ" in stopped

    assert attempts(recovered) == [
        ("ingest", "1", "FAILED"),
        ("ingest", "2", "COMPLETED"),
        ("clean", "1", "COMPLETED"),
        ("report", "1", "FAILED"),
        ("report", "2", "COMPLETED"),
    ]
    assert recovered.count("executor crash: killed by SIGKILL") == 2
    assert "workflow COMPLETED" in recovered
    assert published(recovered) == everything
