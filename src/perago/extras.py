"""Optional parts of the installation: one sentence when one is missing."""

from collections.abc import Generator
from contextlib import contextmanager

from perago.authoring.errors import PeragoError


class MissingExtraError(PeragoError):
    """A command needs packages that are an extra of the installation."""


@contextmanager
def extra(name: str, purpose: str) -> Generator[None]:
    """Turn a missing package within the block into the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("perago"):
            raise
        raise MissingExtraError(f"{purpose} needs the '{name}' extra: pip install 'perago[{name}]'") from error
