"""The list of mutations is of the sources as they are."""

from tests import mutations


def test_every_mutation_finds_what_it_takes_away() -> None:
    mutations.check()
