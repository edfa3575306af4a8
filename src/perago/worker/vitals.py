"""Is the supervisor well? Told from outside its event loop, which could not tell when it stalls."""

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import structlog

_log = structlog.get_logger("perago.supervisor")

STALLED_SECONDS = 15.0
POLL_STUCK_SECONDS = 90.0


@dataclass
class Vitals:
    """When the event loop last turned, and when a poll last came back."""

    last_beat: float = field(default_factory=time.monotonic)
    last_poll: float | None = None
    waiting_to_poll_since: float | None = None

    async def beat(self) -> None:
        """Show for ever that the event loop turns."""
        while True:
            self.last_beat = time.monotonic()
            await asyncio.sleep(1)

    def is_healthy(self) -> tuple[bool, dict[str, Any]]:
        """Whether the event loop turns and polls come back."""
        loop_age, stuck = age(self.last_beat) or 0.0, age(self.waiting_to_poll_since) or 0.0
        good = loop_age < STALLED_SECONDS and stuck < POLL_STUCK_SECONDS
        told = {"healthy": good, "event_loop_age": loop_age, "last_poll_age": age(self.last_poll)}
        return good, {**told, "waiting_for_poll": stuck}

    def watch(self, over: threading.Event) -> None:
        """Start a thread that says so when the worker stalls."""

        def look() -> None:
            while not over.wait(STALLED_SECONDS / 2):
                good, told = self.is_healthy()
                if not good:
                    _log.error("worker is stalled", **told)

        threading.Thread(target=look, name="perago-watchdog", daemon=True).start()


def age(moment: float | None) -> float | None:
    return None if moment is None else round(time.monotonic() - moment, 2)
