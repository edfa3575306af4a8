"""For tests of tasks: run a body between its guardrails, on a plain directory and with no server."""

from perago.testing.local import run_task

__all__ = ["run_task"]
