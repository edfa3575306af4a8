import os
import sys
from collections.abc import Generator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import structlog

from perago.attempt import publication
from perago.attempt.publication import Publication
from perago.authoring.workspace import StagedWorkspace
from perago.data.plan import Plan
from perago.lake.errors import LakeError
from perago.protocol.publication import Merge
from tests.explorer import explorer
from tests.explorer.explorer import Report, explore
from tests.explorer.invariants import InvariantBroken
from tests.explorer.scenario import Body, Scenario
from tests.explorer.summary import EXPLORED
from tests.fakes.files import InMemoryFiles

BODIES: tuple[Body, Body] = ("changed", "no-op")
PAIRS = [(first, second) for first in BODIES for second in BODIES]
TRIPLES = [(first, second, third) for first, second in PAIRS for third in BODIES]
CHANGED = Scenario(("changed", "changed"))
REPORTS: list[Report] = []

deep = pytest.mark.skipif(os.environ.get("PERAGO_EXPLORER") != "deep", reason="PERAGO_EXPLORER=deep widens the bounds")


@pytest.fixture(autouse=True)
def quiet() -> Generator[None]:
    """Thousands of attempts fail on purpose, each with its evidence in the log."""

    def drop(_logger: Any, _name: str, _event: Mapping[str, Any]) -> str:
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[drop])
    yield
    structlog.configure(**before)


@pytest.fixture(autouse=True)
def counted(request: pytest.FixtureRequest) -> Generator[None]:
    """What a test is the first to explore goes into the run's summary."""
    before = len(REPORTS)
    yield
    for report in REPORTS[before:]:
        # Not by `record_property`, which warns, and so fails here, where a JUnit file is written.
        request.node.user_properties.append((EXPLORED, (repr(report.scenario), report.states, report.seconds)))


@cache
def explored(scenario: Scenario) -> Report:
    with TemporaryDirectory() as root:
        report = explore(scenario, Path(root))
    REPORTS.append(report)
    sys.stdout.write(f"{report}\n")
    assert explorer.COMPLETED in report.exhibits
    return report


def shown(report: Report, *names: str) -> None:
    for name in names:
        assert name in report.exhibits
        sys.stdout.write(report.exhibit(name))


@pytest.mark.parametrize("bodies", PAIRS, ids="/".join)
def test_every_history_of_two_attempts_keeps_the_promises(bodies: tuple[Body, Body]) -> None:
    explored(Scenario(bodies))


@pytest.mark.parametrize("bodies", PAIRS, ids="/".join)
def test_every_history_beside_a_foreign_writer_keeps_the_promises(bodies: tuple[Body, Body]) -> None:
    report = explored(Scenario(bodies, foreign=True))

    shown(report, explorer.FOREIGN_MISTAKEN)


@pytest.mark.parametrize("bodies", TRIPLES, ids="/".join)
def test_every_history_of_three_attempts_keeps_the_promises(bodies: tuple[Body, ...]) -> None:
    explored(Scenario(bodies, in_all=1))


def test_a_zombie_past_its_last_fence_can_publish_and_the_explorer_shows_how() -> None:
    report = explored(CHANGED)

    shown(report, explorer.OVERTAKEN, explorer.MIXED, explorer.LEFT)


@pytest.mark.parametrize("bodies", PAIRS, ids="/".join)
def test_a_newer_attempts_publication_is_never_taken_for_an_abandoned_one(bodies: tuple[Body, Body]) -> None:
    assert explorer.MISTAKEN not in explored(Scenario(bodies)).exhibits


def test_a_foreign_commit_between_look_and_reset_can_be_lost_and_the_explorer_shows_how() -> None:
    report = explored(Scenario(("changed", "no-op"), foreign=True))

    shown(report, explorer.MIXED, explorer.FOREIGN_RACED)


@pytest.mark.parametrize(
    "bodies", [pytest.param(pair, marks=deep if pair == CHANGED.bodies else ()) for pair in PAIRS], ids="/".join
)
def test_the_reduction_loses_nothing(bodies: tuple[Body, Body]) -> None:
    reduced, full = explored(Scenario(bodies)), explored(Scenario(bodies, reduced=False))

    assert full.states > reduced.states
    assert full.exhibits.keys() == reduced.exhibits.keys()
    assert full.histories == reduced.histories


def test_attempts_that_write_one_file_differently_are_never_mixed() -> None:
    report = explored(Scenario(("changed", "changed"), overlap=True))

    assert explorer.MIXED not in report.exhibits


def test_no_op_attempts_alone_never_move_the_target() -> None:
    report = explored(Scenario(("no-op", "no-op")))

    assert set(report.exhibits) == {explorer.COMPLETED}


# -- the explorer finds what is planted -------------------------------------------------------------------------------


def nothing(*_: object) -> None: ...


def yes(*_: object) -> bool:
    return True


def always_merge(*_: object, by_hand: bool) -> Merge:
    return Merge()


def finds(promise: str, scenario: Scenario, root: Path) -> None:
    with pytest.raises(InvariantBroken) as broken:
        explore(scenario, root)
    assert str(broken.value).startswith(promise)


def test_an_attempt_fence_that_lets_all_pass_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "assert_current_attempt_snapshot", nothing)

    finds("(c) a publish by an attempt its fence refused", CHANGED, tmp_path)


def test_a_publish_fence_that_always_merges_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "decide", always_merge)

    finds("(d) merge though", CHANGED, tmp_path)


def test_a_merge_whose_parent_nobody_looks_at_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "assert_published_onto", nothing)

    finds("(b) completed with a ref that is not on the input", CHANGED, tmp_path)


def test_an_unanswered_merge_taken_for_landed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "is_this_publication", yes)

    finds("(b) completed with a ref that was never its publication", CHANGED, tmp_path)


def test_an_unanswered_merge_sent_again_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(self: Publication, staged: StagedWorkspace, error: LakeError) -> str:
        return self._merge(staged)

    monkeypatch.setattr(Publication, "_found_published", again)

    finds("(c) a publish is sent a second time", CHANGED, tmp_path)


def test_a_staging_branch_that_is_not_cleaned_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publication, "clean", nothing)

    finds("(e) an attempt ended and its staging branch is left", CHANGED, tmp_path)


def test_an_upload_whose_failure_is_swallowed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = InMemoryFiles.apply

    def careless(self: InMemoryFiles, plan: Plan, repository: str, branch: str, prefix: str, workspace: Path) -> None:
        with suppress(LakeError):
            whole(self, plan, repository, branch, prefix, workspace)

    monkeypatch.setattr(InMemoryFiles, "apply", careless)

    finds("(a) the target holds", CHANGED, tmp_path)


# -- deep ------------------------------------------------------------------------------------------------------------


@deep
@pytest.mark.parametrize("bodies", PAIRS, ids="/".join)
def test_deep_with_two_unanswered_calls_for_each_attempt(bodies: tuple[Body, Body]) -> None:
    explored(Scenario(bodies, faults=2))


@deep
@pytest.mark.parametrize("foreign", [False, True], ids=["alone", "foreign writer"])
@pytest.mark.parametrize("bodies", TRIPLES, ids="/".join)
def test_deep_with_three_attempts(bodies: tuple[Body, ...], foreign: bool) -> None:
    explored(Scenario(bodies, foreign=foreign, in_all=1 if foreign else 2))
