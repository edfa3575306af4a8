"""One line at the end of a run: what was explored, by all of its test processes."""

from collections.abc import Iterator
from itertools import chain

import pytest

#: A property of a test: a scenario, its states and seconds. The test's report carries it to the process that prints.
EXPLORED = "explored"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # More than one process may have explored a scenario.
    found = {scenario: (states, seconds) for scenario, states, seconds in _explored(terminalreporter)}
    if found:
        states = sum(states for states, _ in found.values())
        seconds = sum(seconds for _, seconds in found.values())
        terminalreporter.write_line(f"explorer: {len(found)} scenarios, {states:,} states, {seconds:.1f} s")


def _explored(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[str, int, float]]:
    for report in chain.from_iterable(terminalreporter.stats.values()):
        for name, value in getattr(report, "user_properties", ()):
            if name == EXPLORED:
                yield value
