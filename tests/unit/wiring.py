"""A small world of tasks and workflows for the tests of wiring."""

from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, Field, computed_field

from perago.authoring.task import TaskDefinition, definition_of, task
from perago.authoring.wiring import wiring_problems
from perago.authoring.workspace import WorkspaceSpec

INGEST = "task 'ingest' (orders.ingest): inputParameters"
BUILD = "task 'build' (features.build): inputParameters"


class Mode(Enum):
    FULL = "full"
    DELTA = "delta"


class Window(BaseModel):
    first: int
    last: int | None = None


class IngestParams(BaseModel):
    source: str = Field(min_length=2, pattern="^[a-z0-9:/]+$")
    limit: int = Field(default=10, ge=1, lt=1000)
    mode: Mode = Mode.FULL


class Node(BaseModel):
    label: str
    children: list["Node"] = []


class Csv(BaseModel):
    kind: Literal["csv"] = "csv"
    delimiter: str


class Parquet(BaseModel):
    kind: Literal["parquet"] = "parquet"
    rows_per_group: int


class IngestResult(BaseModel):
    row_count: int
    table: str
    share: float
    checked: bool
    window: Window
    files: list[Window]
    counts: dict[str, int]
    tree: Node
    origin: Csv | Parquet
    maybe: int | None
    span: tuple[int, str]
    anything: Any
    codes: dict[Annotated[str, Field(pattern="^x")], int] = {}
    days: dict[Literal["monday", "friday"], int] = {}
    cost: int = Field(alias="total-cost")
    late: Window | None = None
    late_files: list[Window] | None = None
    by_number: dict[int, Window] = {}
    note: str = ""

    @computed_field(alias="hasRows")
    @property
    def has_rows(self) -> bool:
        return self.row_count > 0


class BuildParams(BaseModel):
    limit: int
    ratio: float = 1.0
    table: str = "orders"
    mode: Literal["full", "delta"] = "full"
    window: Window | None = None
    windows: list[Window] = []
    numbers: list[int] = []
    pair: tuple[int, str] | None = None
    counts: dict[str, int] = {}
    tree: Node | None = None
    origin: Annotated[Csv | Parquet, Field(discriminator="kind")] | None = None
    anything: Any = None
    dry: bool = False
    tags: set[str] = set()
    by_number: dict[int, int] = {}
    day: date | None = None
    price: Decimal = Decimal(0)
    colour: str = Field(default="", validation_alias=AliasChoices("colour", "color"))


class BuildResult(BaseModel):
    features: int


class NotifyParams(BaseModel):
    first: int
    last: int | None = None


class ScheduleParams(NotifyParams):
    zone: str = "UTC"


class RemindParams(NotifyParams):
    zone: str


def ingest_task() -> TaskDefinition:
    @task(name="orders.ingest", owner_email="data@example.com", workspace=WorkspaceSpec(prefix="/raw"))
    def ingest(workspace: Path, params: IngestParams) -> IngestResult: ...

    return defined(ingest)


def build_task() -> TaskDefinition:
    @task(name="features.build", owner_email="data@example.com", workspace=WorkspaceSpec(prefix="/features"))
    def build(workspace: Path, params: BuildParams) -> BuildResult: ...

    return defined(build)


def notify_task() -> TaskDefinition:
    @task(name="orders.notify", owner_email="data@example.com")
    def notify(params: NotifyParams) -> BuildResult: ...

    return defined(notify)


def schedule_task() -> TaskDefinition:
    @task(name="orders.schedule", owner_email="data@example.com")
    def schedule(params: ScheduleParams) -> ScheduleParams: ...

    return defined(schedule)


def remind_task() -> TaskDefinition:
    @task(name="orders.remind", owner_email="data@example.com")
    def remind(params: RemindParams) -> BuildResult: ...

    return defined(remind)


def defined(function: object) -> TaskDefinition:
    definition = definition_of(function)
    assert definition is not None
    return definition


TASKS = [ingest_task(), build_task(), notify_task(), schedule_task(), remind_task()]
WORKSPACE = {
    "repository": "${workflow.input.repository}",
    "branch": "${workflow.input.branch}",
    "ref_type": "commit",
    "ref": "${workflow.input.ref}",
}


def simple(reference: str, name: str, **inputs: Any) -> dict[str, Any]:
    return {"name": name, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": inputs}


def ingest(reference: str = "ingest", **params: Any) -> dict[str, Any]:
    return simple(reference, "orders.ingest", workspace=WORKSPACE, params={"source": "s3://orders", **params})


def build(reference: str = "build", **params: Any) -> dict[str, Any]:
    given = {"limit": 5, **params}
    return simple(reference, "features.build", workspace="${ingest.output.workspace}", params=given)


def reader(reference: str, **inputs: Any) -> dict[str, Any]:
    """A task of another worker: only its expressions are checked."""
    return simple(reference, "elsewhere", **inputs)


def holder(reference: str, kind: str, **nested: Any) -> dict[str, Any]:
    return {"name": reference, "taskReferenceName": reference, "type": kind, **nested}


def workflow(*tasks: Any, **more: Any) -> dict[str, Any]:
    return {"name": "orders", "version": 1, "tasks": list(tasks), **more}


def problems(*tasks: Any, **more: Any) -> list[str]:
    return wiring_problems(workflow(*tasks, **more), TASKS)


def realistic() -> dict[str, Any]:
    """As Conductor exports it: every task carries empty lists of what it does not nest."""
    empty: dict[str, Any] = {"decisionCases": {}, "defaultCase": [], "forkTasks": [], "loopOver": [], "joinOn": []}
    features = build(
        limit="${ingest.output.result.row_count}",
        ratio="${ingest.output.result.row_count}",
        table="lake.${ingest.output.result.table}_${workflow.input.day}",
        mode="${ingest.input.params.mode}",
        window="${ingest.output.result.window}",
        windows="${ingest.output.result.files}",
        numbers="${ingest.output.result.files[*].first}",
        pair="${ingest.output.result.span}",
        counts="${ingest.output.result.counts}",
        tree="${ingest.output.result.tree.children[0]}",
        origin="${ingest.output.result.origin}",
        anything={"free": ["${ingest.status}", "$${not.an.expression}", "${CPEWF_TASK_ID}"]},
    )
    return workflow(
        {**empty, **ingest(limit="${workflow.input.limit}", mode="delta")},
        {**empty, **features},
        inputParameters=["repository", "branch", "ref", "limit", "day"],
        outputParameters={"workspace": "${build.output.workspace}", "features": "${build.output.result.features}"},
    )
