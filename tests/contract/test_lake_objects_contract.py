"""What transfers rest on in lakeFS, asked of the real server and of the one in memory alike."""

import pytest

from perago.lake.errors import LakeBadRequest
from perago.lake.objects import PAGE
from tests.contract.conftest import Repo

AWKWARD = ["a/b/c", "a/b", "a/bc/d", "a/b.txt", "a/b/", "é", "z", "\uffff", "😀", "a//b", "Z", " ", "a b", "%2F", "+"]


def test_objects_are_listed_in_the_order_of_their_paths_bytes(repo: Repo) -> None:
    for path in AWKWARD:
        repo.put("main", path)

    assert repo.paths("main") == sorted(AWKWARD, key=str.encode)
    assert repo.paths(repo.commit()) == sorted(AWKWARD, key=str.encode)


def test_a_prefix_is_compared_as_text(repo: Repo) -> None:
    for path in AWKWARD:
        repo.put("main", path)

    assert repo.paths("main", "a/b") == ["a/b", "a/b.txt", "a/b/", "a/b/c", "a/bc/d"]
    assert repo.paths("main", "a/b/") == ["a/b/", "a/b/c"]
    assert repo.paths("main", "nothing") == []


def test_a_listing_tells_the_size_and_a_fetch_the_content(repo: Repo) -> None:
    repo.put("main", "empty", "")
    repo.put("main", "full", "first")
    repo.put("main", "full", "sécond")

    assert [(listed.path, listed.size) for listed in repo.objects.list(repo.name, "main", "")] == [
        ("empty", 0),
        ("full", 7),
    ]
    assert repo.files("main") == {"empty": "", "full": "sécond"}


def test_pages_of_a_listing_are_invisible(repo: Repo) -> None:
    paths = sorted(f"{number}" for number in range(PAGE + 5))
    repo.put_empty("main", paths)

    assert repo.paths("main") == paths
    repo.remove("main", *paths[:PAGE])
    assert repo.paths("main") == paths[PAGE:]


def test_deleting_objects_that_are_gone_is_as_wanted(repo: Repo) -> None:
    repo.put("main", "a")

    repo.remove("main", "a", "never-there")
    repo.remove("main")

    assert repo.paths("main") == []


def test_deleting_on_a_branch_that_is_gone_is_not_noticed(repo: Repo) -> None:
    repo.remove("never-there", "a")

    assert not repo.control.branch_exists(repo.name, "never-there")


def test_a_bulk_delete_has_a_limit(repo: Repo) -> None:
    with pytest.raises(LakeBadRequest):
        repo.remove("main", *(f"{number}" for number in range(PAGE + 1)))


def test_an_object_needs_a_path(repo: Repo) -> None:
    with pytest.raises(LakeBadRequest):
        repo.put("main", "")
