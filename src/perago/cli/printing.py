"""How the commands speak: results on stdout, everything else on stderr."""

import warnings
from collections.abc import Generator
from contextlib import contextmanager

import typer
from rich.console import Console


def print_error(message: str) -> None:
    typer.echo(f"error: {message}", err=True)


@contextmanager
def author_warnings() -> Generator[None]:
    """Show warnings about a declaration as lines of their own rather than as Python's."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for entry in caught:
        typer.echo(f"warning: {entry.message}", err=True)


def out() -> Console:
    """Results for people, as wide as the terminal, unbroken elsewhere."""
    return Console(highlight=False, soft_wrap=True)
