"""Rows of figures: medians, spreads, and a ratio against the row they are compared with."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Row:
    what: str
    seconds: Sequence[float]
    against: str = ""
    ratio: float | None = None


def alternating(subjects: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure each subject `rounds` times in turn, so that a noisy minute is shared by all."""
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    for number in range(rounds):
        order = list(subjects.items())
        for name, measure in order if number % 2 == 0 else reversed(order):
            os.sync()  # what the one before left to be written is not the next one's to wait for
            taken[name].append(measure())
    return taken


def as_markdown(rows: Sequence[Row]) -> str:
    lines = ["| what | seconds | ratio |", "|---|---|---|"]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}× {row.against}"
        figures = f"{median(row.seconds):.3f} ({min(row.seconds):.3f}–{max(row.seconds):.3f})" if row.seconds else ""
        lines.append(f"| {row.what} | {figures} | {ratio} |")
    return "\n".join(lines)
