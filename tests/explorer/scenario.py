"""What is explored: bodies, a foreign writer, and how much may go wrong."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from perago.protocol.attempt import Attempt
from perago.protocol.names import staging_branch_name
from tests.explorer.code import AttemptCode, Call, perform
from tests.fakes.conductor import InMemoryConductor
from tests.fakes.files import Contents
from tests.fakes.lake import InMemoryLake

Body = Literal["changed", "no-op"]

REPOSITORY = "repository"
TARGET = "main"
FOREIGN_FILE = "foreign"
INPUT = {"kept": b"kept", "old": b"old"}


@dataclass(frozen=True)
class Scenario:
    """One task, an attempt for each body in this order, and bounds.

    `overlap`: all bodies write one file too, so that lakeFS refuses to mix two publications; without it, the worse
    case, they share no path. `faults` and `crashes` bound unanswered calls and crashes of each attempt, `in_all`
    their sum. `reduced`: calls that no other process can notice are not interleaved.
    """

    bodies: tuple[Body, ...]
    foreign: bool = False
    overlap: bool = False
    faults: int = 1
    crashes: int = 1
    in_all: int = 99
    reduced: bool = True

    @property
    def name(self) -> str:
        extras = [word for word, on in (("foreign writer", self.foreign), ("overlapping", self.overlap)) if on]
        return ", ".join(["/".join(self.bodies), *extras])

    def parts(self, index: int) -> dict[str, bytes]:
        """The files that this attempt alone adds."""
        if self.bodies[index] == "no-op":
            return {}
        return {f"part-{index}-{half}": b"part" for half in ("a", "b")}

    def body(self, index: int, contents: Contents) -> None:
        if self.bodies[index] == "no-op":
            return
        del contents["old"]
        contents.update(self.parts(index))
        if self.overlap:
            contents["summary"] = f"by {index}".encode()

    def whole(self, index: int) -> dict[str, bytes]:
        """The whole workspace that this attempt would publish."""
        contents = dict(INPUT)
        self.body(index, contents)
        return contents

    def last_fence(self, index: int) -> int:
        """How many fences an attempt passes before it may publish."""
        return 2 if self.bodies[index] == "changed" else 1


class Stage:
    """A scenario with its servers and its attempts' code."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self.scenario = scenario
        self.lake = InMemoryLake()
        self.lake.ensure_repository(REPOSITORY, "local://repository", TARGET)
        for path, content in INPUT.items():
            perform(Call("store", (REPOSITORY, TARGET, path, content)), self.lake)
        self.input_ref = self.lake.commit(REPOSITORY, TARGET, "input", {})
        payload = {
            "workspace": {"repository": REPOSITORY, "branch": TARGET, "ref_type": "commit", "ref": self.input_ref},
            "params": {},
        }
        self.attempts = self._attempts()
        self.code = [
            AttemptCode(polled, payload, lambda contents, index=index: scenario.body(index, contents), root)
            for index, polled in enumerate(self.attempts)
        ]

    def _attempts(self) -> list[Attempt]:
        conductor = InMemoryConductor.scheduling(len(self.scenario.bodies) - 1)
        polled: list[Attempt] = []
        for _ in self.scenario.bodies:
            conductor = conductor.polled()
            polled.append(conductor.newest)
            conductor = conductor.timed_out()
        return polled

    @cached_property
    def staging_branches(self) -> list[str]:
        return [staging_branch_name(polled, f"execution{polled.retry_count}") for polled in self.attempts]
