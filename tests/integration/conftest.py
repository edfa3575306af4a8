"""Servers that integration tests need beside the stack's."""

from collections.abc import Generator

import pytest

from perago.devstack.embedded import EmbeddedSpark
from perago.devstack.progress import Reporter


@pytest.fixture(scope="session")
def own_spark(tmp_path_factory: pytest.TempPathFactory) -> Generator[EmbeddedSpark]:
    """A server to be killed; it starts again when it is asked for."""
    folder = tmp_path_factory.mktemp("spark")
    with EmbeddedSpark(folder / "spark.log", folder / "scratch", "1g", Reporter()) as server:
        yield server
