"""Progress of long work: a bar on a terminal, a line every few seconds elsewhere."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Advance = Callable[[int], None]
_LINE_EVERY = 5.0


class Reporter:
    """Tells a person what is going on, on stderr, so that stdout stays for results."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)

    def quiet(self) -> "Reporter":
        """One that says nothing, for the parts of a step that is shown as a whole."""
        return Reporter(Console(quiet=True))

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, title: str, total: int | None = None, unit: str = "") -> Generator[Advance]:
        """Show `title` until the block ends; the value given takes the amount done since the last call."""
        shown = self._bar if self._console.is_terminal else self._lines
        with shown(title, total, unit) as advance:
            yield advance

    @contextmanager
    def _bar(self, title: str, total: int | None, unit: str) -> Generator[Advance]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[amount]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(title, total=total, amount="")
            done = 0

            def advance(amount: int) -> None:
                nonlocal done
                done += amount
                progress.update(task, completed=done, amount=_amount(done, total, unit))

            yield advance
            progress.update(task, total=done or 1, completed=done or 1)

    @contextmanager
    def _lines(self, title: str, total: int | None, unit: str) -> Generator[Advance]:
        started = last = time.monotonic()
        done = 0
        self.note(f"{title} …")

        def advance(amount: int) -> None:
            nonlocal done, last
            done += amount
            if time.monotonic() - last >= _LINE_EVERY:
                last = time.monotonic()
                self.note(f"{title} … {_amount(done, total, unit) or f'{last - started:.0f} s'}")

        yield advance
        self.note(f"{title}: done in {time.monotonic() - started:.1f} s")


def _amount(done: int, total: int | None, unit: str) -> str:
    if not unit:
        return ""
    if unit == "B":
        shown, of, unit = f"{done / 1e6:.0f}", f" of {total / 1e6:.0f}" if total else "", "MB"
    else:
        shown, of = str(done), f" of {total}" if total else ""
    return f"{shown}{of} {unit}".rstrip()
