"""Named places where a test may end, stop or break an attempt: `PERAGO_FAILPOINT=phase:kill|hang|raise`.

Armed only in test mode, and only for the first delivery of a task, so that its retry can show the recovery.
"""

import os
import signal
from collections.abc import Mapping
from typing import Literal, get_args

from perago.attempt.phases import Phase
from perago.authoring.errors import RuntimeConfigError, TaskExecutionError

Action = Literal["kill", "hang", "raise"]


class Failpoint:
    """One armed place, or none."""

    def __init__(self, phase: Phase | None = None, action: Action = "kill") -> None:
        self._phase = phase
        self._action = action

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Failpoint":
        asked = environment.get("PERAGO_FAILPOINT")
        if not asked:
            return cls()
        if environment.get("PERAGO_TEST_MODE") != "1":
            raise RuntimeConfigError("PERAGO_FAILPOINT is for tests only: unset it, or set PERAGO_TEST_MODE=1")
        phase, _, action = asked.partition(":")
        if phase not in get_args(Phase) or action not in get_args(Action):
            raise RuntimeConfigError(
                f"PERAGO_FAILPOINT={asked}: write PHASE:ACTION, with PHASE one of {', '.join(get_args(Phase))} and"
                f" ACTION one of {', '.join(get_args(Action))}"
            )
        return cls(phase, action)  # pyright: ignore[reportArgumentType] - checked just above

    def reached(self, phase: Phase, retry_count: int = 0) -> None:
        if phase != self._phase or retry_count:
            return
        if self._action == "raise":
            raise TaskExecutionError(f"failpoint {phase}")
        os.kill(os.getpid(), signal.SIGKILL if self._action == "kill" else signal.SIGSTOP)
