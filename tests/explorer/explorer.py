"""Every history of the publication protocol within bounds, run on the real code.

What runs. The real `run_attempt` with all it calls, for two or three attempts of one task on one target branch, on the
lakeFS and the Conductor in memory that `tests/contract` holds against the real ones. Every gateway call is one atomic
step. In every order: the attempts' steps; Conductor timing the current attempt out at any moment (the next one starts
while the old goes on as a zombie) or, where another would follow, cancelling it with its workflow; a foreign writer
that uploads to the target and commits; and, for each attempt, a crash before any step (so also after any), and calls
that get no answer: a read, a change that was carried out, one that was not, and a publish that lakeFS carries out at
any later moment.

Bounds. Two attempts: one unanswered call and one crash for each. Three attempts: one of either in all, and no foreign
writer. One foreign commit. Two looks for a publish without an answer. Of late calls only publishes: a lost call on the
attempt's own branch happens at once or never. `PERAGO_EXPLORER=deep` widens these, and holds the reduction that follows
against the whole for two changed attempts too.

How it stays small. States are told apart by the target, by each attempt's history of answers and by what invariants
need of the past (`World`, `Past`). A step that no other process can notice is taken first, with all its variants, and
not interleaved: it commutes with all that others do, and histories never turn back.

What holds, letter by letter:

(a) Without a foreign writer the target holds the input or the whole of one attempt's result, unless a merge went onto
    another head than its writer had read. With one, the same and the foreign file.
(b) COMPLETED with a ref: a changed attempt's own write made it the head, on the input, with just that attempt's
    content; a no-op's is the input, where the target was, or was put, after its fence.
(c) A publish is sent once, by an attempt that Conductor confirmed as the running one at each of its fences, the last
    of them after its last change of the staging branch. Unless an attempt was overtaken (see below), and without a
    foreign writer: no merge misses its head; any later attempt could explain the target; and once Conductor has
    recorded a completion the target stays there.
(d) A merge follows only from the input as head, a reset only from a direct child of the input: after any other head,
    no write.
(e) An attempt that ends leaves no staging branch, unless deleting it got no answer.
(f) Always, mixed or not: of each attempt's files the target holds all or none.
(g) A foreign commit stays in the target's history with its file, unless an attempt resets the target, and either it
    is a direct child of the input, or it came after the attempt had read the head.

What the soft fence cannot give. An attempt that passed its last fence may be timed out before its publish is carried
out, and lakeFS takes no expected head. A newer attempt is *overtaken* when such a publish lands after the newer one
has passed its own last fence. The `exhibits` are the shortest histories of what follows: results of two attempts
mixed (the later one finds out and fails); the target leaving what was completed; and, with a foreign writer, (g)'s two
losses. A newer publication taken for an abandoned one and reset is not among them: Conductor is asked once more
between the look at the target and a reset.
"""

import gc
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.explorer.invariants import InvariantBroken, Invariants, is_lost
from tests.explorer.scenario import REPOSITORY, Scenario, Stage
from tests.explorer.world import State, Step, Transition, World, Write

COMPLETED = "Conductor records a completion"
OVERTAKEN = "a stale attempt publishes after a newer one passed its last fence"
MIXED = "the changes of two writers are mixed on the target"
LEFT = "the target leaves what Conductor has recorded as completed"
MISTAKEN = "a stale attempt takes a newer one's publication for an abandoned one"
FOREIGN_MISTAKEN = "a foreign commit directly on the input is taken for an abandoned publication"
FOREIGN_RACED = "a foreign commit between look and reset is lost"

#: The way to a state: its last step, and the way to the one before.
Trail = tuple["Trail", Step] | None


@dataclass
class Report:
    scenario: Scenario
    states: int = 0
    transitions: int = 0
    #: How many different histories of answers the attempts' code was run with.
    histories: int = 0
    seconds: float = 0.0
    #: For each thing worth showing, the shortest history that shows it.
    exhibits: dict[str, list[Step]] = field(default_factory=dict[str, list[Step]])

    def __str__(self) -> str:
        return (
            f"{self.scenario.name}: {self.states} states, {self.transitions} transitions,"
            f" {self.histories} histories of attempts, {self.seconds:.1f} s"
        )

    def exhibit(self, name: str) -> str:
        remarkable = [step for step in self.exhibits[name] if not step.unremarkable]
        steps = "\n".join(f"  {number:2}. {step}" for number, step in enumerate(remarkable, 1))
        return f"{name} ({self.scenario.name}):\n{steps}\n"


def explore(scenario: Scenario, root: Path) -> Report:
    """Visit every state once, breadth first, so that what is found is found by a shortest history."""
    began = time.perf_counter()
    report, stage = Report(scenario), Stage(scenario, root)
    with _without_collection():
        _visit_all(report, stage)
    report.histories = sum(code.moments for code in stage.code)
    report.seconds = time.perf_counter() - began
    return report


@contextmanager
def _without_collection() -> Generator[None]:
    """Nothing here is cyclic garbage, and looking for some takes a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _visit_all(report: Report, stage: Stage) -> None:
    world, invariants = World(stage), Invariants(stage)
    first = world.beginning()
    seen = {first.key(stage)}
    waiting: deque[tuple[State, Trail]] = deque([(first, None)])
    while waiting:
        state, trail = waiting.popleft()
        report.states += 1
        for transition in world.transitions(state):
            report.transitions += 1
            way: Trail = (trail, transition.step)
            try:
                invariants.check_step(transition)
                key = transition.state.key(stage)
                if key not in seen:
                    seen.add(key)
                    invariants.check_state(transition.state)
                    waiting.append((transition.state, way))
            except InvariantBroken as broken:
                raise InvariantBroken(f"{broken}\n" + "\n".join(f"  {step}" for step in _steps(way))) from None
            _exhibit(report, transition, way)


def _exhibit(report: Report, transition: Transition, way: Trail) -> None:
    for name in _worth_showing(report.scenario, transition):
        if name not in report.exhibits:
            report.exhibits[name] = _steps(way)


def _worth_showing(scenario: Scenario, transition: Transition) -> Iterator[str]:
    state = transition.state
    if state.past.overtaken:
        yield OVERTAKEN
    if state.past.mixed:
        yield MIXED
    if state.conductor.completed_with is not None:
        yield COMPLETED
        if state.conductor.completed_with != state.head and state.foreign_commit is None:
            yield LEFT
    for write in transition.writes:
        yield from _worth_showing_of(write, scenario, state)


def _worth_showing_of(write: Write, scenario: Scenario, state: State) -> Iterator[str]:
    repository = state.lake.repository(REPOSITORY)
    if write.writer is None or write.call.name != "reset":
        return
    newer = range(write.writer + 1, len(scenario.bodies))
    if write.decided_on and any(scenario.parts(i).keys() & repository.commits[write.decided_on].files for i in newer):
        yield MISTAKEN
    if state.foreign_commit is not None and is_lost(write, state.foreign_commit, repository):
        yield FOREIGN_MISTAKEN if write.decided_on == state.foreign_commit else FOREIGN_RACED


def _steps(way: Trail) -> list[Step]:
    steps: list[Step] = []
    while way is not None:
        way, step = way
        steps.append(step)
    return steps[::-1]
