"""The world at one moment, and every step that may come next."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from perago.attempt.lifecycle import Completed
from perago.conductor.errors import ConductorError
from perago.lake.errors import LakeOutcomeUnknown, LakeUnreachable
from tests.explorer.code import Answer, Call, Moment, perform
from tests.explorer.scenario import FOREIGN_FILE, REPOSITORY, TARGET, Stage
from tests.fakes.conductor import InMemoryConductor
from tests.fakes.lake import InMemoryLake

# An attempt that crashed and one that ended are alike to all others.
Phase = Literal["waiting", "running", "over"]
Variant = Literal["answered", "answer lost", "not carried out", "lands later", "no answer"]

PUBLISHING = frozenset({"merge", "reset"})
CHANGING = frozenset({"create_branch", "delete_branch", "commit", "store", "delete", *PUBLISHING})
# Their outcome is looked up; other changes are repeated by the gateway until it gives up.
_OUTCOME_MATTERS = frozenset({"create_branch", "commit", *PUBLISHING})
_FOREIGN_STEPS = (
    Call("store", (REPOSITORY, TARGET, FOREIGN_FILE, b"foreign")),
    Call("commit", (REPOSITORY, TARGET, "foreign", ())),
)


class Progress(NamedTuple):
    """How far one attempt has come; what cannot matter any more is forgotten."""

    phase: Phase = "waiting"
    moment: Moment | None = None
    faults: int = 0
    fences: int = 0

    @property
    def key(self) -> Hashable:
        return self.phase, self.moment.number if self.moment else 0, self.faults, self.fences


@dataclass(frozen=True)
class LateCall:
    """A publish that its attempt has given up, and that lakeFS may still carry out."""

    attempt: int
    call: Call
    decided_on: str


@dataclass(frozen=True)
class Write:
    """One change of the target's head."""

    writer: int | None  # None is the foreign writer
    call: Call
    decided_on: str | None  # the head its writer had read
    before: str
    after: str


class Past(NamedTuple):
    """What invariants must know of the way here."""

    published: frozenset[tuple[int, str]] = frozenset()
    #: A merge went onto another head than its writer had read.
    mixed: bool = False
    #: An attempt's publish was carried out after a newer attempt had passed its last fence.
    overtaken: bool = False


@dataclass(frozen=True)
class Step:
    """Who did what, for people to read."""

    who: str
    what: str
    how: str = ""
    #: Nobody else could notice it, and it went as usual.
    unremarkable: bool = False

    def __str__(self) -> str:
        return f"{self.who}: {self.what}{f' [{self.how}]' if self.how else ''}"


class State(NamedTuple):
    lake: InMemoryLake
    conductor: InMemoryConductor
    attempts: tuple[Progress, ...]
    foreign_steps: int = 0
    foreign_commit: str | None = None
    late: tuple[LateCall, ...] = ()
    past: Past = Past()
    troubles: int = 0

    @property
    def head(self) -> str:
        return self.lake.repository(REPOSITORY).heads[TARGET]

    def key(self, stage: Stage) -> Hashable:
        repository = self.lake.repository(REPOSITORY)
        # A branch of an attempt that is over is nobody's: it can no longer matter.
        running = [index for index, one in enumerate(self.attempts) if one.phase == "running"]
        live = [TARGET, *(stage.staging_branches[index] for index in running)]
        refs = tuple(repository.heads.get(branch) for branch in live)
        changes = tuple(frozenset((repository.changes.get(branch) or {}).items()) for branch in live)
        known = self.conductor.attempts
        conductor = len(known), self.conductor.completed_with, tuple(known[index].status for index in running)
        attempts = tuple(one.key for one in self.attempts)
        others = self.foreign_steps, self.foreign_commit, frozenset(self.late)
        return refs, changes, conductor, attempts, others, self.past, self.troubles


@dataclass(frozen=True)
class Transition:
    step: Step
    state: State
    writes: tuple[Write, ...] = ()
    #: The attempt that ends here, its last moment, and the state it ends in.
    ended: tuple[int, Moment, State] | None = None


class World:
    """The steps of a scenario: its attempts', Conductor's, the foreign writer's and lakeFS's own late ones."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.scenario = stage.scenario

    def beginning(self) -> State:
        count = len(self.scenario.bodies)
        conductor = InMemoryConductor.scheduling(count - 1)
        waiting = (Progress(faults=self.scenario.faults),) * count
        return self._delivered(State(self.stage.lake, conductor, waiting))

    def transitions(self, state: State) -> Iterator[Transition]:
        running = [index for index, one in enumerate(state.attempts) if one.phase == "running"]
        if self.scenario.reduced:
            alone = next((index for index in running if self._is_private(state, index)), None)
            if alone is not None:
                yield from self._attempt_steps(state, alone)
                return
        for index in running:
            yield from self._attempt_steps(state, index)
        yield from self._conductor_steps(state)
        yield from self._foreign_steps(state)
        yield from self._late_steps(state)

    def _is_private(self, state: State, index: int) -> bool:
        """Whether the next step neither notices nor changes what another process can reach.

        Such are calls on the attempt's own branch and on commits, which never change; and, once Conductor has moved
        on for good, asking it and reporting to it.
        """
        moment = state.attempts[index].moment
        call = moment.next if moment else None
        if not isinstance(call, Call) or call.name == "current":
            return state.conductor.attempts[index].status != "IN_PROGRESS"
        return call.name not in PUBLISHING and call.arguments[:2] != (REPOSITORY, TARGET)

    # -- attempts --------------------------------------------------------------------------------------------------

    def _attempt_steps(self, state: State, index: int) -> Iterator[Transition]:
        moment = state.attempts[index].moment
        assert moment is not None
        if isinstance(moment.next, Call):
            for how in self._variants(state, index, moment.next):
                yield self._called(state, index, moment.next, how)
        else:
            yield self._reported(state, index, moment)
        if self.scenario.crashes and state.troubles < self.scenario.in_all:
            crashed = self._over(state, index)._replace(troubles=self._troubles(state))
            yield Transition(Step(_name(index), "crash"), crashed)

    def _variants(self, state: State, index: int, call: Call) -> Iterator[Variant]:
        yield "answered"
        if not state.attempts[index].faults or state.troubles >= self.scenario.in_all:
            return
        if call.name not in CHANGING:
            yield "no answer"
            return
        yield "not carried out"
        yield "answer lost"
        if call.name in PUBLISHING:
            yield "lands later"

    def _called(self, state: State, index: int, call: Call, how: Variant) -> Transition:
        one = state.attempts[index]
        assert one.moment is not None
        lake, answer = self._carried_out(state, call, how)
        moment = self.stage.code[index].after(one.moment, answer)
        fences = one.fences + (call.name == "current" and answer.error is None and answer.value.status == "IN_PROGRESS")
        faults = one.faults - (how != "answered")
        after = self._with(state, index, Progress("running", moment, faults, fences))
        if how != "answered":
            after = after._replace(troubles=self._troubles(state))
        if how == "lands later":
            after = after._replace(late=(*after.late, LateCall(index, call, head_read(one.moment) or "")))
        usual = how == "answered" and self._is_private(state, index) and call.name != "current"
        step = Step(_name(index), _shown(call), how if how != "answered" else _told(answer), usual)
        decided_on = head_read(one.moment)
        return self._noticed(step, state, after._replace(lake=lake), index, call, decided_on)

    def _carried_out(self, state: State, call: Call, how: Variant) -> tuple[InMemoryLake, Answer]:
        if how in ("no answer", "not carried out", "lands later"):
            return state.lake, _unanswered(call)
        if call.name == "current":
            return state.lake, Answer.of(lambda: state.conductor.current(*call.arguments))
        lake = state.lake.fork() if call.name in CHANGING else state.lake
        answer = Answer.of(lambda: perform(call, lake))
        return lake, _unanswered(call) if how == "answer lost" else answer

    def _reported(self, state: State, index: int, moment: Moment) -> Transition:
        outcome = moment.next
        assert not isinstance(outcome, Call)
        polled = self.stage.attempts[index]
        if isinstance(outcome, Completed):
            ref = str(outcome.output["workspace"]["ref"])
            conductor, told = state.conductor.reported(polled, "COMPLETED", ref), f"COMPLETED with {ref[:6]}"
        else:
            failure = outcome.failure
            conductor, told = state.conductor.reported(polled, failure.status), f"{failure.status}, {failure.reason}"
        dropped = "dropped" if conductor is state.conductor else ""
        ended = self._over(state, index)
        after = self._delivered(ended._replace(conductor=conductor))
        return Transition(Step(_name(index), f"report {told}", dropped), after, ended=(index, moment, state))

    # -- the others ------------------------------------------------------------------------------------------------

    def _conductor_steps(self, state: State) -> Iterator[Transition]:
        if not state.conductor.waits:
            return
        newest = state.conductor.newest
        timed_out = self._delivered(state._replace(conductor=state.conductor.timed_out()))
        yield Transition(Step("Conductor", f"times {_name(newest.retry_count)} out"), timed_out)
        if newest.retry_count == len(state.attempts) - 1:
            return  # no attempt would follow anyway
        cancelled = state._replace(conductor=state.conductor.cancelled())
        yield Transition(Step("Conductor", f"cancels {_name(newest.retry_count)} with its workflow"), cancelled)

    def _foreign_steps(self, state: State) -> Iterator[Transition]:
        if not self.scenario.foreign or state.foreign_steps == len(_FOREIGN_STEPS):
            return
        call = _FOREIGN_STEPS[state.foreign_steps]
        lake = state.lake.fork()
        made = perform(call, lake)
        after = state._replace(lake=lake, foreign_steps=state.foreign_steps + 1, foreign_commit=made)
        yield self._noticed(Step("foreign writer", _shown(call)), state, after, None, call, None)

    def _late_steps(self, state: State) -> Iterator[Transition]:
        for late in state.late:
            lake = state.lake.fork()
            answer = Answer.of(lambda late=late, lake=lake: perform(late.call, lake))
            after = state._replace(lake=lake, late=tuple(other for other in state.late if other is not late))
            step = Step("lakeFS", f"carries {_name(late.attempt)}'s {late.call.name} out late", _told(answer))
            yield self._noticed(step, state, after, late.attempt, late.call, late.decided_on)

    # -- bookkeeping -----------------------------------------------------------------------------------------------

    def _noticed(
        self, step: Step, before: State, after: State, writer: int | None, call: Call, decided_on: str | None
    ) -> Transition:
        """A step with the change of the target it made, if any."""
        if before.head == after.head:
            return Transition(step, after)
        write = Write(writer, call, decided_on, before.head, after.head)
        past = after.past
        if writer is not None:
            past = Past(
                past.published | {(writer, write.after)},
                past.mixed or (call.name == "merge" and decided_on != write.before),
                past.overtaken or self._is_overtaking(before, writer),
            )
        return Transition(step, after._replace(past=past), (write,))

    def _is_overtaking(self, state: State, writer: int) -> bool:
        newer = range(writer + 1, len(state.attempts))
        return any(state.attempts[index].fences >= self.scenario.last_fence(index) for index in newer)

    def _delivered(self, state: State) -> State:
        """A scheduled attempt is polled at once: an attempt that starts later just takes its first step later."""
        if state.conductor.newest.status != "SCHEDULED":
            return state
        index = state.conductor.newest.retry_count
        started = state.attempts[index]._replace(phase="running", moment=self.stage.code[index].start)
        return self._with(state._replace(conductor=state.conductor.polled()), index, started)

    def _over(self, state: State, index: int) -> State:
        """An attempt makes no further step; of its past, only whether it passed its last fence matters to others."""
        last = self.scenario.last_fence(index)
        fences = last if state.attempts[index].fences >= last else 0
        past = state.past
        if any(writer == index for writer, _ in past.published):
            kept = frozenset(entry for entry in past.published if entry[0] != index)
            past = past._replace(published=kept)
        return self._with(state, index, Progress("over", fences=fences))._replace(past=past)

    def _with(self, state: State, index: int, one: Progress) -> State:
        return state._replace(attempts=(*state.attempts[:index], one, *state.attempts[index + 1 :]))

    def _troubles(self, state: State) -> int:
        """Counted only where their sum is bounded, so that states stay few."""
        return state.troubles + 1 if self.scenario.in_all < 99 else 0


def head_read(moment: Moment) -> str | None:
    """The target's head as the attempt last read it."""
    for call, answer in reversed(moment.steps):
        if call.name == "head" and call.arguments == (REPOSITORY, TARGET) and answer.error is None:
            return answer.value.id
    return None


def _unanswered(call: Call) -> Answer:
    if call.name == "current":
        return Answer(None, ConductorError, "Conductor cannot be reached")
    if call.name in _OUTCOME_MATTERS:
        return Answer(None, LakeOutcomeUnknown, f"lakeFS gave no answer to {call.name}: its outcome is unknown")
    return Answer(None, LakeUnreachable, f"lakeFS gave no answer to {call.name}")


def _name(index: int) -> str:
    return f"attempt {index + 1}"


def _shown(call: Call) -> str:
    if call.name == "current":
        return "attempt fence"
    if call.name == "reset":
        return f"reset to {call.arguments[2][:6]}"
    if call.name == "merge":
        return f"merge {call.arguments[1][:6]}"
    where = f" {call.arguments[1]}" if call.arguments[1] == TARGET else ""
    return f"{call.name}{where}"


def _told(answer: Answer) -> str:
    if answer.error is not None:
        return answer.error.__name__
    value = getattr(answer.value, "status", None) or getattr(answer.value, "id", None) or answer.value
    return value[:11] if isinstance(value, str) else ""
