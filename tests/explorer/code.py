"""The real code of one attempt, asked what it does next after given answers.

An attempt sees the world only through its gateways' answers, so what it does next is a function of the answers so
far. `AttemptCode` runs the real `run_attempt` once for each such history, with gateways that repeat the history and
then raise `Paused` for good (as a dying process makes no further call), and remembers what was asked.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel

from perago.attempt.lifecycle import Completed, Execution, Failed, Servers, run_attempt
from perago.authoring.task import definition_of, task
from perago.authoring.workspace import WorkspaceSpec
from perago.lake.objects import RemoteObject, Sink
from perago.protocol.attempt import Attempt
from perago.protocol.publication import Commit
from tests.fakes.files import Contents, InMemoryFiles, Received
from tests.fakes.lake import InMemoryLake

# One look and, after no time at all, another: whatever happens between the two is explored.
PATIENCE = (0.0,)


@dataclass(frozen=True)
class Call:
    """One call of a gateway, its arguments by position."""

    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Answer:
    """What a call gave back: a value or an error."""

    value: Any = None
    error: type[Exception] | None = None
    message: str = ""

    @classmethod
    def of(cls, call: Callable[[], Any]) -> "Answer":
        try:
            return cls(call())
        except Exception as error:
            return cls(None, type(error), str(error))

    def give(self) -> Any:
        if self.error is not None:
            raise self.error(self.message)
        return self.value


class Paused(BaseException):
    """The history has no further answer: the attempt is wherever it is."""


@dataclass
class Moment:
    """An attempt after a history of answers, and what it asks next or how it ended."""

    number: int
    steps: tuple[tuple[Call, Answer], ...]
    next: Call | Completed | Failed
    following: dict[Answer, "Moment"] = field(default_factory=dict[Answer, "Moment"])


class Replay:
    """Conductor, control and object calls that repeat a history."""

    def __init__(self, steps: Sequence[tuple[Call, Answer]]) -> None:
        self._steps = iter(steps)
        self.asked: Call | None = None

    def _ask(self, name: str, *arguments: Any) -> Any:
        call = Call(name, arguments)
        if self.asked is None:
            known, answer = next(self._steps, (None, None))
            if answer is not None:
                assert known == call, f"not deterministic: asked {call} where {known} was asked before"
                return answer.give()
            self.asked = call
        raise Paused

    def current(self, attempt: Attempt) -> Attempt:
        return self._ask("current", attempt)

    def head(self, repository: str, branch: str) -> Commit:
        return self._ask("head", repository, branch)

    def commit_of(self, repository: str, ref: str) -> Commit:
        return self._ask("commit_of", repository, ref)

    def branch_exists(self, repository: str, branch: str) -> bool:
        return self._ask("branch_exists", repository, branch)

    def create_branch(self, repository: str, name: str, source: str) -> None:
        self._ask("create_branch", repository, name, source)

    def delete_branch(self, repository: str, name: str) -> None:
        self._ask("delete_branch", repository, name)

    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str:
        return self._ask("commit", repository, branch, message, tuple(metadata.items()))

    def merge(
        self,
        repository: str,
        source: str,
        branch: str,
        message: str,
        metadata: Mapping[str, str],
        timeout: float | None = None,
    ) -> str:
        return self._ask("merge", repository, source, branch, message, tuple(metadata.items()))

    def reset(self, repository: str, branch: str, ref: str, timeout: float | None = None) -> None:
        self._ask("reset", repository, branch, ref)

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[RemoteObject]:
        return iter(self._ask("list", repository, ref, prefix))

    def fetch(self, repository: str, ref: str, wanted: RemoteObject, sink: Sink) -> int:
        content: bytes = self._ask("fetch", repository, ref, wanted)
        sink.restart()
        sink.write(content)
        return len(content)

    def store(self, repository: str, branch: str, path: str, content: Callable[[], BinaryIO], size: int) -> None:
        with content() as file:
            self._ask("store", repository, branch, path, file.read())

    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None:
        self._ask("delete", repository, branch, tuple(paths))


def perform(call: Call, lake: InMemoryLake) -> Any:
    """Carry a call out; it changes `lake` where it changes anything."""
    match call.name, call.arguments:
        case "list", arguments:
            return tuple(lake.list(*arguments))
        case "fetch", (repository, ref, wanted):
            sink = Received()
            lake.fetch(repository, ref, wanted, sink)
            return sink.content
        case "store", (repository, branch, path, content):
            return lake.store(repository, branch, path, lambda: BytesIO(content), len(content))
        case "commit" | "merge", (*arguments, metadata):
            return getattr(lake, call.name)(*arguments, dict(metadata))
        case name, arguments:
            return getattr(lake, name)(*arguments)


class Nothing(BaseModel):
    pass


class AttemptCode:
    """All that one attempt with one body can do, found by running it."""

    def __init__(self, polled: Attempt, payload: Mapping[str, Any], body: Callable[[Contents], None], root: Path):
        self._root = root
        self._files: InMemoryFiles

        @task(name="explored", owner_email="explorer@example.com", workspace=WorkspaceSpec())
        def explored(workspace: Path, params: Nothing) -> Nothing:
            body(self._files.directory(workspace))
            return Nothing()

        definition = definition_of(explored)
        assert definition is not None
        self._execution = Execution(definition, polled, f"execution{polled.retry_count}", payload)
        self.moments = 0
        self.start = self._moment(())

    def after(self, moment: Moment, answer: Answer) -> Moment:
        """Where the attempt is once its call has been answered."""
        known = moment.following.get(answer)
        if known is None:
            assert isinstance(moment.next, Call)
            known = moment.following[answer] = self._moment((*moment.steps, (moment.next, answer)))
        return known

    def _moment(self, steps: tuple[tuple[Call, Answer], ...]) -> Moment:
        self.moments += 1
        replay = Replay(steps)
        self._files = InMemoryFiles(replay)
        outcome = run_attempt(self._execution, Servers(replay, replay, self._files, patience=PATIENCE), self._root)
        return Moment(self.moments, steps, replay.asked or outcome)
