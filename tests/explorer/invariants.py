"""What must hold: in what an attempt asks, in each change of the target, in each state, and when an attempt ends."""

from perago.attempt.lifecycle import Completed
from tests.explorer.code import Call, Moment
from tests.explorer.scenario import FOREIGN_FILE, INPUT, REPOSITORY, TARGET, Stage
from tests.explorer.world import CHANGING, PUBLISHING, State, Transition, Write, head_read
from tests.fakes.lake import Repository, StoredCommit


class InvariantBroken(AssertionError):  # noqa: N818 - it says what happened
    """A reachable history is not as promised."""


class Invariants:
    """The letters are those of the explorer's docstring."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._scenario = stage.scenario
        self._input = stage.input_ref
        self._wholes = [INPUT, *(self._scenario.whole(index) for index in range(len(self._scenario.bodies)))]
        self._parts = [frozenset(self._scenario.parts(index)) for index in range(len(self._scenario.bodies))]
        self._checked: set[tuple[int, int]] = set()

    def check_step(self, transition: Transition) -> None:
        state = transition.state
        for index, one in enumerate(state.attempts):
            if one.moment is not None and (index, one.moment.number) not in self._checked:
                self._checked.add((index, one.moment.number))
                self._check_call(index, one.moment)
        for write in transition.writes:
            self._check_write(write, state)
        if transition.ended is not None:
            self._check_end(*transition.ended)

    # -- what an attempt asks --------------------------------------------------------------------------------------

    def _check_call(self, index: int, moment: Moment) -> None:
        call = moment.next
        if not isinstance(call, Call) or call.name not in CHANGING:
            return
        branch = call.arguments[2 if call.name == "merge" else 1]
        if call.name not in PUBLISHING:
            _require(branch == self._stage.staging_branches[index], f"{call.name} on {branch}, not the staging branch")
            return
        _require(branch == TARGET, f"{call.name} on {branch}, not the target")
        asked = [done for done, _ in moment.steps if done.name in PUBLISHING]
        _require(not asked, "(c) a publish is sent a second time")
        self._check_fences(index, moment)
        self._check_explained(call, moment)

    def _check_fences(self, index: int, moment: Moment) -> None:
        names = [done.name for done, _ in moment.steps]
        fences = [place for place, name in enumerate(names) if name == "current"]
        _require(len(fences) >= self._scenario.last_fence(index), "(c) a publish without all of its fences")
        staged = [place for place, name in enumerate(names) if name in CHANGING]
        _require(not staged or staged[-1] < fences[-1], "(c) the staging branch changes after the last fence")
        polled = self._stage.attempts[index]
        for place in fences:
            answer = moment.steps[place][1]
            _require(answer.error is None and answer.value == polled, "(c) a publish by an attempt its fence refused")

    def _check_explained(self, call: Call, moment: Moment) -> None:
        found = head_read(moment)
        _require(found is not None, "(d) a publish without a look at the target's head")
        head = next(answer.value for _, answer in reversed(moment.steps) if getattr(answer.value, "id", None) == found)
        expected = head.id if call.name == "merge" else head.first_parent
        _require(expected == self._input, f"(d) {call.name} though the head that was read cannot be explained")

    # -- the target ------------------------------------------------------------------------------------------------

    def _check_write(self, write: Write, state: State) -> None:
        """A foreign commit leaves the target's history only as the publish fence admits."""
        foreign = state.foreign_commit
        if write.writer is None or foreign is None:
            return
        repository = state.lake.repository(REPOSITORY)
        if not is_lost(write, foreign, repository):
            return
        _require(write.call.name == "reset", "(g) a foreign commit was lost by something else than a reset")
        unseen = foreign not in repository.ancestry(str(write.decided_on))
        taken_for_abandoned = write.decided_on == foreign and self._parent(repository, foreign) == self._input
        _require(unseen or taken_for_abandoned, "(g) a foreign commit was lost though the attempt saw it")

    def check_state(self, state: State) -> None:
        repository = state.lake.repository(REPOSITORY)
        head = repository.commits[state.head]
        past, ours = state.past, without_foreign(head)
        if not past.mixed:
            _require(ours in self._wholes, f"(a) the target holds {sorted(ours)}")
        for parts in self._parts:
            _require(parts <= ours.keys() or not parts & ours.keys(), f"(f) the target holds a part: {sorted(ours)}")
        if state.foreign_commit is not None:
            kept = state.foreign_commit in repository.ancestry(state.head)
            _require(kept == (FOREIGN_FILE in head.entries), "(g) a foreign commit and its file went different ways")
            return
        _require(past.overtaken or not past.mixed, "(c) a merge missed its head though no attempt was overtaken")
        if past.overtaken:
            return
        explained = self._input in (state.head, head.commit.first_parent)
        _require(explained, "(c) no later attempt could explain the target, though none was overtaken")
        completed = state.conductor.completed_with
        _require(completed in (None, state.head), "(c) the target left what was completed, though none was overtaken")

    # -- the end of an attempt -------------------------------------------------------------------------------------

    def _check_end(self, index: int, moment: Moment, state: State) -> None:
        self._check_cleaned(state, index, moment)
        if not isinstance(moment.next, Completed):
            return
        ref = str(moment.next.output["workspace"]["ref"])
        if self._scenario.bodies[index] == "changed":
            self._check_published(state, index, ref)
            return
        _require(ref == self._input, "(b) a no-op completed with another ref than its input")
        reset = any(done.name == "reset" and answer.error is None for done, answer in moment.steps)
        _require(reset or head_read(moment) == self._input, "(b) a no-op completed though the target was elsewhere")

    def _check_published(self, state: State, index: int, ref: str) -> None:
        repository = state.lake.repository(REPOSITORY)
        _require((index, ref) in state.past.published, "(b) completed with a ref that was never its publication")
        _require(self._parent(repository, ref) == self._input, "(b) completed with a ref that is not on the input")
        _require(repository.commits[ref].files == self._scenario.whole(index), "(b) completed with other content")

    def _check_cleaned(self, state: State, index: int, moment: Moment) -> None:
        left = self._stage.staging_branches[index] in state.lake.repository(REPOSITORY).heads
        failed = any(done.name == "delete_branch" and answer.error is not None for done, answer in moment.steps)
        _require(failed or not left, "(e) an attempt ended and its staging branch is left")

    @staticmethod
    def _parent(repository: Repository, ref: str) -> str | None:
        return repository.commits[ref].commit.first_parent


def is_lost(write: Write, foreign: str, repository: Repository) -> bool:
    """Whether a write took a commit out of the target's history."""
    return foreign in repository.ancestry(write.before) and foreign not in repository.ancestry(write.after)


def without_foreign(head: StoredCommit) -> dict[str, bytes]:
    return {path: content for path, content in head.files.items() if path != FOREIGN_FILE}


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvariantBroken(otherwise)
