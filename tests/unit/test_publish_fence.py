"""The publish fence as a table: what may be done with a target, from commits alone."""

import pytest

from perago import PublishFenceError
from perago.protocol.publication import (
    Commit,
    Complete,
    Decision,
    Merge,
    Refuse,
    Relocate,
    Replace,
    assert_published_onto,
    decide,
    is_this_publication,
)

INPUT = "input"
STAGED = Commit("staged", (INPUT,), "tree-staged")


@pytest.mark.parametrize(
    ("head", "parents", "changed", "decision"),
    [
        pytest.param(INPUT, (), True, Merge(), id="changed, at the first commit"),
        pytest.param(INPUT, ("older",), True, Merge(), id="changed, at the input"),
        pytest.param(INPUT, ("older",), False, Complete(), id="unchanged, at the input"),
        pytest.param("abandoned", (INPUT,), True, Replace(), id="changed, a child of the input"),
        pytest.param("abandoned", (INPUT,), False, Relocate(), id="unchanged, a child of the input"),
        pytest.param("merged", (INPUT, "other"), True, Replace(), id="changed, a merge onto the input"),
        pytest.param(INPUT, (INPUT,), True, Merge(), id="the head itself counts before its parent"),
    ],
)
def test_a_target_at_the_input_or_one_commit_beyond_is_explained(
    head: str, parents: tuple[str, ...], changed: bool, decision: Decision
) -> None:
    assert decide(Commit(head, parents, "tree"), INPUT, changed) == decision


@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize(
    "parents",
    [
        pytest.param((), id="a first commit"),
        pytest.param(("older",), id="before the input"),
        pytest.param(("child",), id="two beyond the input"),
        pytest.param(("other", INPUT), id="the input merged into something else"),
    ],
)
def test_any_other_target_is_refused_with_all_ids(parents: tuple[str, ...], changed: bool) -> None:
    decision = decide(Commit("elsewhere", parents, "tree"), INPUT, changed)

    assert isinstance(decision, Refuse)
    parent = parents[0] if parents else None
    assert decision.reason.startswith(
        f"the target's head is elsewhere (parent {parent}), neither the input {INPUT} nor its direct child"
    )


@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize("parents", [(), (INPUT,), ("older",)])
def test_a_run_by_hand_takes_no_commit_for_an_abandoned_one(parents: tuple[str, ...], changed: bool) -> None:
    decision = decide(Commit("somebodys", parents, "tree"), INPUT, changed, by_hand=True)

    assert isinstance(decision, Refuse)
    assert f"the target's head is somebodys, not the input {INPUT}" in decision.reason
    assert "leave --ref out" in decision.reason


@pytest.mark.parametrize(("changed", "decision"), [(True, Merge()), (False, Complete())])
def test_a_run_by_hand_goes_on_where_the_target_is_at_its_input(changed: bool, decision: Decision) -> None:
    assert decide(Commit(INPUT, ("older",), "tree"), INPUT, changed, by_hand=True) == decision


@pytest.mark.parametrize("parents", [(INPUT,), (INPUT, "staged")])
def test_a_merge_onto_the_input_is_a_publication(parents: tuple[str, ...]) -> None:
    assert_published_onto(INPUT, Commit("made", parents, "tree"))


@pytest.mark.parametrize("parents", [(), ("moved",), ("moved", INPUT)])
def test_a_merge_onto_anything_else_fails_with_all_ids(parents: tuple[str, ...]) -> None:
    with pytest.raises(PublishFenceError) as raced:
        assert_published_onto(INPUT, Commit("made", parents, "tree"))

    parent = parents[0] if parents else None
    assert f"the merge became made on {parent}, but this attempt began at {INPUT}" in str(raced.value)


@pytest.mark.parametrize(
    ("head", "ours"),
    [
        pytest.param(STAGED, True, id="the staged commit itself"),
        pytest.param(Commit("merge", (INPUT,), "tree-staged"), True, id="its content on the input"),
        pytest.param(Commit("merge", (INPUT, "staged"), "tree-staged"), True, id="its content merged onto the input"),
        pytest.param(Commit("staged", ("elsewhere",), "tree"), True, id="an id is a commit, whatever else is told"),
        pytest.param(Commit(INPUT, ("older",), "tree-input"), False, id="still at the input"),
        pytest.param(Commit("other", (INPUT,), "tree-other"), False, id="another attempt's content on the input"),
        pytest.param(Commit("merge", ("moved",), "tree-staged"), False, id="its content, but on another commit"),
        pytest.param(Commit("merge", ("moved", INPUT), "tree-staged"), False, id="the input only as second parent"),
        pytest.param(Commit("first", (), "tree-staged"), False, id="its content without a parent"),
    ],
)
def test_an_unanswered_publish_is_known_by_its_content_and_its_parent(head: Commit, ours: bool) -> None:
    assert is_this_publication(head, INPUT, STAGED) is ours
