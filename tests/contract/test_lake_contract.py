"""What the publication protocol rests on in lakeFS, asked of the real server and of the one in memory alike."""

from collections.abc import Callable

import pytest

from perago.lake.errors import LakeBadRequest, LakeConflict, LakeForbidden, LakeNotFound
from tests.contract.conftest import Repo

NOWHERE = "f" * 64


# -- repositories, refs and branches ---------------------------------------------------------------------------------


def test_a_repository_is_made_once(repo: Repo) -> None:
    assert not repo.control.ensure_repository(repo.name, f"local://{repo.name}")
    assert repo.head().parents == ()


def test_a_commit_has_the_former_head_as_its_parent(repo: Repo) -> None:
    root = repo.head().id

    made = repo.commit_files(a="1")

    assert repo.head() == repo.at(made)
    assert repo.head().parents == (root,)


def test_a_ref_may_be_a_branch_a_commit_or_the_beginning_of_its_id(repo: Repo) -> None:
    made = repo.commit_files(a="1")

    assert repo.at("main").id == repo.at(made).id == repo.at(made[:12]).id == made


def test_a_branch_is_not_found_by_the_id_of_a_commit(repo: Repo) -> None:
    made = repo.commit_files(a="1")

    assert not repo.control.branch_exists(repo.name, made)
    with pytest.raises(LakeNotFound):
        repo.head(made)


def test_a_branch_starts_at_its_source_without_the_sources_uncommitted_files(repo: Repo) -> None:
    made = repo.commit_files(a="1")
    repo.put("main", "b")

    repo.control.create_branch(repo.name, "from-branch", "main")
    repo.control.create_branch(repo.name, "from-commit", made)

    assert repo.head("from-branch") == repo.head("from-commit") == repo.at(made)
    assert repo.paths("from-branch") == repo.paths("from-commit") == ["a"]


def test_an_existing_branch_is_a_conflict_and_is_left_alone(repo: Repo) -> None:
    first = repo.commit_files(a="1")
    repo.control.create_branch(repo.name, "taken", first)
    second = repo.commit_files(a="2")

    with pytest.raises(LakeConflict):
        repo.control.create_branch(repo.name, "taken", second)

    assert repo.head("taken").id == first


def test_a_branch_needs_a_source_and_a_proper_name(repo: Repo) -> None:
    with pytest.raises(LakeNotFound):
        repo.control.create_branch(repo.name, "staging", NOWHERE)
    with pytest.raises(LakeBadRequest):
        repo.control.create_branch(repo.name, "a/b", "main")

    assert list(repo.control.branches(repo.name, "")) == ["main"]


def test_hidden_branches_are_listed_by_prefix_in_order(repo: Repo) -> None:
    for name in ("perago-staging-b", "perago-staging-B", "perago-staging_a", "other"):
        repo.control.create_branch(repo.name, name, "main")

    found = list(repo.control.branches(repo.name, "perago-staging"))

    assert found == ["perago-staging-B", "perago-staging-b", "perago-staging_a"]


def test_a_deleted_branchs_commits_stay_readable(repo: Repo) -> None:
    staged = repo.staged("main", a="1")

    repo.control.delete_branch(repo.name, "staging")

    assert not repo.control.branch_exists(repo.name, "staging")
    assert repo.at(staged.id) == staged
    assert repo.files(staged.id) == {"a": "1"}


def test_deleting_a_branch_that_is_gone_changes_nothing(repo: Repo) -> None:
    repo.control.delete_branch(repo.name, "never-there")
    repo.control.delete_branch("never-a-repository", "main")


def test_a_branch_made_again_does_not_hold_its_predecessors_uncommitted_files(repo: Repo) -> None:
    repo.control.create_branch(repo.name, "staging", "main")
    repo.put("staging", "left-over")
    repo.control.delete_branch(repo.name, "staging")

    repo.control.create_branch(repo.name, "staging", "main")

    assert repo.paths("staging") == []


def test_the_default_branch_cannot_be_deleted(repo: Repo) -> None:
    with pytest.raises(LakeForbidden):
        repo.control.delete_branch(repo.name, "main")


ABSENT: dict[str, Callable[[Repo], object]] = {
    "head": lambda repo: repo.head("nowhere"),
    "commit_of": lambda repo: repo.at("nowhere"),
    "commit": lambda repo: repo.commit("nowhere"),
    "merge of nothing": lambda repo: repo.merge(NOWHERE),
    "merge into nothing": lambda repo: repo.merge("main", "nowhere"),
    "reset to nothing": lambda repo: repo.reset(NOWHERE),
    "reset of nothing": lambda repo: repo.reset("main", "nowhere"),
    "list": lambda repo: repo.paths("nowhere"),
    "fetch": lambda repo: repo.read("main", "nothing"),
    "store": lambda repo: repo.put("nowhere", "a"),
    "repository": lambda repo: repo.control.head("no-such-repository", "main"),
    "branches": lambda repo: list(repo.control.branches("no-such-repository", "")),
}


@pytest.mark.parametrize("call", ABSENT)
def test_what_is_not_there_is_not_found(repo: Repo, call: str) -> None:
    with pytest.raises(LakeNotFound):
        ABSENT[call](repo)


# -- commits and trees -----------------------------------------------------------------------------------------------


def test_uncommitted_changes_are_seen_on_their_branch_alone(repo: Repo) -> None:
    base = repo.commit_files(a="1", b="1")
    repo.control.create_branch(repo.name, "staging", base)

    repo.put("staging", "a", "2")
    repo.remove("staging", "b")

    assert repo.files("staging") == {"a": "2"}
    assert repo.files("main") == repo.files(base) == {"a": "1", "b": "1"}


def test_a_commit_without_changes_is_refused(repo: Repo) -> None:
    base = repo.commit_files(a="1")
    repo.put("main", "a", "1")
    repo.put("main", "b")
    repo.remove("main", "b", "never-there")

    with pytest.raises(LakeBadRequest, match="no changes"):
        repo.commit()

    assert repo.head().id == base


def test_equal_content_uploaded_twice_makes_two_trees(repo: Repo) -> None:
    base = repo.commit_files(a="1")

    assert repo.staged(base, "one", b="2").tree != repo.staged(base, "two", b="2").tree


def test_equal_deletions_make_one_tree(repo: Repo) -> None:
    base = repo.commit_files(a="1", b="1")
    for branch in ("one", "two"):
        repo.control.create_branch(repo.name, branch, base)
        repo.remove(branch, "a")
        repo.commit(branch, note=branch)

    assert repo.head("one").tree == repo.head("two").tree
    assert repo.head("one").id != repo.head("two").id


def test_a_tree_whose_change_is_taken_back_is_the_former_one(repo: Repo) -> None:
    base = repo.commit_files(a="1")
    repo.commit_files(b="1")
    repo.remove("main", "b")

    assert repo.at(repo.commit()).tree == repo.at(base).tree


# -- merge -----------------------------------------------------------------------------------------------------------


def test_a_squash_merge_onto_the_base_gives_the_staged_tree_and_one_parent(repo: Repo) -> None:
    base = repo.commit_files(a="1", b="1")
    staged = repo.staged(base, remove=["b"], a="2", c="3")

    published = repo.merge(staged.id)

    assert repo.head() == published
    assert published.tree == staged.tree
    assert published.parents == (base,)
    assert repo.files("main") == {"a": "2", "c": "3"}


def test_a_moved_target_is_merged_three_ways_without_a_word(repo: Repo) -> None:
    base = repo.commit_files(a="1", b="1", c="1")
    staged = repo.staged(base, remove=["c"], a="2")
    moved = repo.commit_files(b="foreign")

    published = repo.merge(staged.id)

    assert published.parents == (moved,)
    assert published.tree not in (staged.tree, repo.at(moved).tree)
    assert repo.files("main") == {"a": "2", "b": "foreign"}


def test_a_target_that_moved_and_came_back_takes_the_staged_tree_on_its_new_head(repo: Repo) -> None:
    base = repo.commit_files(a="1")
    staged = repo.staged(base, b="1")
    repo.commit_files(q="1")
    repo.remove("main", "q")
    back = repo.commit()

    published = repo.merge(staged.id)

    assert (published.tree, published.parents) == (staged.tree, (back,))


def test_two_staged_commits_of_one_base_are_mixed(repo: Repo) -> None:
    base = repo.commit_files(a="1", old="1")
    one = repo.staged(base, "one", remove=["old"], by_one="x")
    two = repo.staged(base, "two", remove=["old"], by_two="x")

    repo.merge(one.id)
    repo.merge(two.id)

    assert repo.paths("main") == ["a", "by_one", "by_two"]


def test_different_changes_of_one_object_conflict_and_leave_the_target(repo: Repo) -> None:
    base = repo.commit_files(a="1")
    staged = repo.staged(base, a="2")
    moved = repo.commit_files(a="3")

    with pytest.raises(LakeConflict):
        repo.merge(staged.id)

    assert repo.head().id == moved


def test_the_same_change_on_both_sides_is_merged_into_another_commit(repo: Repo) -> None:
    base = repo.commit_files(a="1")
    staged = repo.staged(base, a="2")
    moved = repo.commit_files(a="2")

    published = repo.merge(staged.id)

    assert (published.tree, published.parents) == (staged.tree, (moved,))


def test_a_second_merge_of_the_same_commit_succeeds_again(repo: Repo) -> None:
    base = repo.commit_files(a="1")
    staged = repo.staged(base, a="2")
    first = repo.merge(staged.id)

    second = repo.merge(staged.id)

    assert (second.tree, second.parents) == (first.tree, (first.id,))


def test_a_second_merge_brings_back_what_was_taken_out_meanwhile(repo: Repo) -> None:
    base = repo.commit_files(a="1")
    staged = repo.staged(base, b="1")
    repo.merge(staged.id)
    repo.reset(base)
    repo.commit_files(c="later")

    repo.merge(staged.id)

    assert repo.paths("main") == ["a", "b", "c"]


@pytest.mark.parametrize("source", ["an ancestor", "the head itself", "a branch with uncommitted files alone"])
def test_a_merge_that_brings_nothing_is_refused(repo: Repo, source: str) -> None:
    base = repo.commit_files(a="1")
    repo.control.create_branch(repo.name, "staging", base)
    repo.put("staging", "b")
    head = repo.commit_files(c="1")
    refs = {"an ancestor": base, "the head itself": head}

    with pytest.raises(LakeBadRequest, match="no changes"):
        repo.merge(refs.get(source, "staging"))

    assert repo.head().id == head


@pytest.mark.parametrize("dirt", ["an upload", "a deletion"])
def test_a_target_with_uncommitted_changes_refuses_every_merge(repo: Repo, dirt: str) -> None:
    base = repo.commit_files(a="1", b="1")
    staged = repo.staged(base, a="2")
    if dirt == "an upload":
        repo.put("main", "c")
    else:
        repo.remove("main", "b")

    for source in (staged.id, base, NOWHERE):
        with pytest.raises(LakeBadRequest, match="uncommitted"):
            repo.merge(source)

    assert repo.head().id == base


def test_changes_that_change_nothing_do_not_refuse_a_merge(repo: Repo) -> None:
    base = repo.commit_files(a="1")
    staged = repo.staged(base, a="2")
    repo.put("main", "a", "1")
    repo.put("main", "b")
    repo.remove("main", "b")

    assert repo.merge(staged.id).parents == (base,)


# -- reset -----------------------------------------------------------------------------------------------------------


def test_a_reset_moves_a_branch_whatever_its_head_is(repo: Repo) -> None:
    base = repo.commit_files(a="1")
    abandoned = repo.staged(base, "one", b="1")
    staged = repo.staged(base, "two", c="1")
    lost = repo.merge(abandoned.id)

    repo.reset(staged.id)

    assert repo.head() == staged
    assert repo.head().parents == (base,)
    assert repo.files("main") == {"a": "1", "c": "1"}
    assert repo.at(lost.id) == lost


def test_a_reset_to_the_head_is_accepted(repo: Repo) -> None:
    base = repo.commit_files(a="1")

    repo.reset(base)

    assert repo.head().id == base


def test_a_reset_keeps_uncommitted_files(repo: Repo) -> None:
    base = repo.commit_files(a="1")
    repo.commit_files(a="2")
    repo.put("main", "uncommitted")

    repo.reset(base)

    assert repo.files("main") == {"a": "1", "uncommitted": "x"}
    with pytest.raises(LakeBadRequest, match="uncommitted"):
        repo.merge(base)


def test_a_commit_that_the_target_was_reset_to_cannot_be_merged_again(repo: Repo) -> None:
    base = repo.commit_files(a="1")
    staged = repo.staged(base, a="2")
    repo.reset(staged.id)

    with pytest.raises(LakeBadRequest, match="no changes"):
        repo.merge(staged.id)
