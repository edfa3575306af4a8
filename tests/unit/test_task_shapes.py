from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, RootModel

from perago import (
    RetryPolicy,
    SparkWorkspace,
    TaskControls,
    TaskDefinition,
    TaskDefinitionError,
    WorkspaceSpec,
    task,
)
from perago.authoring.task import definition_of

PRELUDE = """
from functools import partial
from pathlib import Path, PosixPath
from typing import Optional
from pydantic import BaseModel
from perago import RetryPolicy, SparkWorkspace, WorkspaceSpec, task

class Params(BaseModel):
    limit: int

class Result(BaseModel):
    row_count: int

alone = task(name="features.build", owner_email="data@example.com")
on_workspace = task(name="features.build", owner_email="data@example.com", workspace=WorkspaceSpec())
"""
WITH_SPEC = "with a WorkspaceSpec write (workspace: Path, params: Model)"
WITHOUT_SPEC = "without a WorkspaceSpec write (params: Model)"
ORDINARY = "write ordinary parameters, no *, / or **"


class Params(BaseModel):
    limit: int


class Result(BaseModel):
    row_count: int


class Rows(RootModel[list[int]]): ...


def imported(source: str) -> dict[str, Any]:
    """What a module `pipeline` with this source defines once it is imported."""
    namespace: dict[str, Any] = {"__name__": "pipeline", "Rows": Rows}
    exec(compile(PRELUDE + source, "pipeline.py", "exec"), namespace)
    return namespace


def definition(found: object) -> TaskDefinition:
    declared = definition_of(found)
    assert declared is not None
    return declared


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        pytest.param("@alone\ndef build(params: Params) -> Result: ...", None, id="params alone"),
        pytest.param(
            "@on_workspace\ndef build(workspace: Path, params: Params) -> Result: ...", "path", id="directory workspace"
        ),
        pytest.param(
            "@on_workspace\ndef build(workspace: SparkWorkspace, params: Params) -> Result: ...",
            "spark",
            id="Spark workspace",
        ),
        pytest.param(
            "@on_workspace\ndef build(workspace: 'Path', params: 'Params') -> 'Result': ...", "path", id="as strings"
        ),
    ],
)
def test_each_shape_of_the_contract_is_accepted(source: str, kind: str | None) -> None:
    module = imported(source)

    declared = definition(module["build"])

    assert declared.workspace_kind == kind
    assert (declared.workspace is None) == (kind is None)
    assert (declared.params_model, declared.result_model) == (module["Params"], module["Result"])


def test_annotated_models_are_taken_for_what_they_annotate() -> None:
    @task(name="features.build", owner_email="data@example.com", workspace=WorkspaceSpec())
    def build(workspace: Annotated[Path, "where"], params: Annotated[Params, "what"]) -> Annotated[Result, "how"]: ...

    declared = definition(build)

    assert (declared.workspace_kind, declared.params_model, declared.result_model) == ("path", Params, Result)


def test_a_wrapped_function_is_seen_through() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return call

    @task(name="features.build", owner_email="data@example.com")
    @logged
    def build(params: Params) -> Result:
        return Result(row_count=params.limit)

    assert definition(build).params_model is Params
    assert build(Params(limit=2)) == Result(row_count=2)


def test_a_declared_function_stays_an_ordinary_function(tmp_path: Path) -> None:
    @task(name="features.build", owner_email="data@example.com", workspace=WorkspaceSpec())
    def build(workspace: Path, params: Params) -> Result:
        return Result(row_count=len(list(workspace.iterdir())) + params.limit)

    (tmp_path / "one.csv").touch()

    assert build(tmp_path, Params(limit=1)) == Result(row_count=2)
    assert build(workspace=tmp_path, params=Params(limit=4)) == Result(row_count=5)
    assert build.__name__ == "build"


def test_a_definition_carries_what_was_declared() -> None:
    spec, controls = WorkspaceSpec(prefix="/features"), TaskControls()

    @task(name="features.build", owner_email="data@example.com", workspace=spec, controls=controls)
    def build(workspace: SparkWorkspace, params: Params) -> Result:
        """Build the features.

        From raw events.
        """
        return Result(row_count=params.limit)

    declared = definition(build)

    assert (declared.name, declared.owner_email) == ("features.build", "data@example.com")
    assert declared.function is build
    assert declared.workspace is spec
    assert declared.controls is controls
    assert declared.description == "Build the features."


@pytest.mark.parametrize(("given", "seen"), [("From events.", "From events."), ("", ""), (None, "")])
def test_a_description_given_wins_over_the_docstring(given: str | None, seen: str) -> None:
    @task(name="features.build", owner_email="data@example.com", description=given)
    def build(params: Params) -> Result: ...

    assert definition(build).description == seen


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        pytest.param(
            "async def build(params: Params) -> Result: ...",
            "is async: write a plain `def`; the worker runs attempts in parallel",
            id="async",
        ),
        pytest.param(
            "async def build(params: Params) -> Result: yield",
            "is async: write a plain `def`; the worker runs attempts in parallel",
            id="async generator",
        ),
        pytest.param(
            "def build(params: Params) -> Result: yield",
            "is a generator: return one result model instead of yielding",
            id="generator",
        ),
        pytest.param(
            "def build(params: Params = Params(limit=1)) -> Result: ...",
            "gives `params` a default: put defaults into the params model's fields",
            id="default",
        ),
        pytest.param(
            "def build(params: Params, verbose: bool = False) -> Result: ...",
            "gives `verbose` a default: put defaults into the params model's fields",
            id="further parameter with a default",
        ),
        pytest.param(
            "def build(*params: Params) -> Result: ...", f"has parameter `*params: pipeline.Params`: {ORDINARY}", id="*"
        ),
        pytest.param(
            "def build(**params: Params) -> Result: ...",
            f"has parameter `**params: pipeline.Params`: {ORDINARY}",
            id="**",
        ),
        pytest.param(
            "def build(*, params: Params) -> Result: ...",
            f"has parameter `params: pipeline.Params`: {ORDINARY}",
            id="keyword-only",
        ),
        pytest.param(
            "def build(params: Params, /) -> Result: ...",
            f"has parameter `params: pipeline.Params`: {ORDINARY}",
            id="positional-only",
        ),
        pytest.param("def build() -> Result: ...", f"takes (): {WITHOUT_SPEC}", id="no parameter"),
        pytest.param("def build(options: Params) -> Result: ...", f"takes (options): {WITHOUT_SPEC}", id="other name"),
        pytest.param(
            "def build(params: Params, more: Params) -> Result: ...",
            f"takes (params, more): {WITHOUT_SPEC}",
            id="one too many",
        ),
        pytest.param(
            "def build(workspace: Path, params: Params) -> Result: ...",
            "takes a workspace but @task declares none: add workspace=WorkspaceSpec(…)",
            id="workspace without a spec",
        ),
        pytest.param(
            "def build(params) -> Result: ...",
            "does not annotate `params`: write `params: Params` with a Pydantic model",
            id="params unannotated",
        ),
        pytest.param(
            "def build(params: Params): ...",
            "does not annotate its return: write `-> Result` with a Pydantic model",
            id="return unannotated",
        ),
        pytest.param(
            "def build(params: dict) -> Result: ...",
            "annotates `params` as dict: use a subclass of pydantic.BaseModel",
            id="params not a model",
        ),
        pytest.param(
            "def build(params: Params) -> None: ...",
            "annotates its return as NoneType: use a subclass of pydantic.BaseModel",
            id="nothing returned",
        ),
        pytest.param(
            "def build(params: Optional[Params]) -> Result: ...",
            "annotates `params` as typing.Optional[pipeline.Params]: use a subclass of pydantic.BaseModel",
            id="optional params",
        ),
        pytest.param(
            "def build(params: Params) -> Result | None: ...",
            "annotates its return as pipeline.Result | None: use a subclass of pydantic.BaseModel",
            id="optional result",
        ),
        pytest.param(
            "def build(params: Params) -> list[Result]: ...",
            "annotates its return as list[pipeline.Result]: use a subclass of pydantic.BaseModel",
            id="list of models",
        ),
        pytest.param(
            "def build(params: Rows) -> Result: ...",
            "annotates `params` as Rows: use a model with named fields",
            id="root model",
        ),
        pytest.param(
            "def build(params: Params) -> BaseModel: ...",
            "annotates its return as BaseModel: use a model with named fields",
            id="BaseModel itself",
        ),
        pytest.param(
            "def build(params: 'Missing') -> Result: ...",
            "has annotations that cannot be resolved (name 'Missing' is not defined): define its models at module"
            " level",
            id="unresolved annotation",
        ),
    ],
)
def test_a_shape_outside_the_contract_is_refused_with_the_function_and_the_fix(source: str, problem: str) -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        imported(f"@alone\n{source}")

    assert str(refusal.value) == f"task function `pipeline.build` {problem}"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        pytest.param("def build(params: Params) -> Result: ...", f"takes (params): {WITH_SPEC}", id="no workspace"),
        pytest.param(
            "def build(params: Params, workspace: Path) -> Result: ...",
            f"takes (params, workspace): {WITH_SPEC}",
            id="other order",
        ),
        pytest.param(
            "def build(where: Path, params: Params) -> Result: ...", f"takes (where, params): {WITH_SPEC}", id="name"
        ),
        pytest.param(
            "def build(workspace, params: Params) -> Result: ...",
            "annotates `workspace` not at all: write `workspace: Path` or `SparkWorkspace`",
            id="unannotated",
        ),
        pytest.param(
            "def build(workspace: str, params: Params) -> Result: ...",
            "annotates `workspace` as str: write `workspace: Path` or `SparkWorkspace`",
            id="text",
        ),
        pytest.param(
            "def build(workspace: PosixPath, params: Params) -> Result: ...",
            "annotates `workspace` as PosixPath: write `workspace: Path` or `SparkWorkspace`",
            id="subclass of Path",
        ),
        pytest.param(
            "def build(workspace: Path | None, params: Params) -> Result: ...",
            "annotates `workspace` as pathlib.Path | None: write `workspace: Path` or `SparkWorkspace`",
            id="optional",
        ),
    ],
)
def test_a_workspace_task_of_another_shape_is_refused(source: str, problem: str) -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        imported(f"@on_workspace\n{source}")

    assert str(refusal.value) == f"task function `pipeline.build` {problem}"


def test_a_method_is_refused_for_its_self() -> None:
    with pytest.raises(TaskDefinitionError, match=r"`pipeline\.Tasks\.build` takes \(self, params\)"):
        imported("class Tasks:\n    @alone\n    def build(self, params: Params) -> Result: ...")


def test_a_lambda_is_refused_since_it_cannot_be_annotated() -> None:
    with pytest.raises(TaskDefinitionError, match=r"`pipeline\.<lambda>` does not annotate `params`"):
        imported("alone(lambda params: Result(row_count=1))")


@pytest.mark.parametrize("name", ["features.build", "no such name!"])
@pytest.mark.parametrize(
    "candidate",
    [
        pytest.param(Params, id="class"),
        pytest.param(len, id="builtin"),
        pytest.param(partial(print), id="partial"),
        pytest.param(staticmethod(print), id="staticmethod"),
        pytest.param(None, id="nothing"),
    ],
)
def test_what_is_no_function_is_refused(candidate: Any, name: str) -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        task(name=name, owner_email="data@example.com")(candidate)

    assert str(refusal.value) == f"@task takes a function, got {candidate!r}: decorate a plain `def`"


@pytest.mark.parametrize("name", ["a", "features.build", "Build_2", "9-lives", "_private"])
def test_a_task_name_of_plain_characters_is_accepted(name: str) -> None:
    @task(name=name, owner_email="data@example.com")
    def build(params: Params) -> Result: ...

    assert definition(build).name == name


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "a:b", ".hidden", "-x", "é", "a\n", "a?b", "a#b", "a%2F"])
def test_a_task_name_with_a_meaning_in_conductor_is_refused(name: str) -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        imported(f"@task(name={name!r}, owner_email='a@b.c')\ndef build(params: Params) -> Result: ...")

    fix = "use letters, digits, '.', '_' and '-'"
    assert str(refusal.value) == f"task function `pipeline.build` has the task name {name!r}: {fix}"


@pytest.mark.parametrize("email", ["", "data", "@example.com", "data@", "a b@c.d", "a@b@c", "data@example.com\n"])
def test_an_owner_that_is_no_address_is_refused(email: str) -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        imported(f"@task(name='t', owner_email={email!r})\ndef build(params: Params) -> Result: ...")

    fix = "give an address like 'team@example.com'"
    assert str(refusal.value) == f"task function `pipeline.build` has owner_email {email!r}: {fix}"


NAME, OWNER = "write name='features.build'", "write owner_email='team@example.com'"
SPEC = "write workspace=WorkspaceSpec(prefix='/features')"
CONTROLS = "write controls=TaskControls(retry=RetryPolicy(count=3))"


@pytest.mark.parametrize(
    ("argument", "written", "shown", "fix"),
    [
        ("name", "5", "5", NAME),
        ("name", "None", "None", NAME),
        ("name", "b'features'", "b'features'", NAME),
        ("owner_email", "['a@b.c']", "['a@b.c']", OWNER),
        ("description", "5", "5", "write description='What it does.'"),
        ("workspace", "'/x'", "'/x'", SPEC),
        ("workspace", "''", "''", SPEC),
        ("workspace", "Path('/x')", f"{Path('/x')!r}", SPEC),
        ("workspace", "WorkspaceSpec", f"{WorkspaceSpec!r}", SPEC),
        ("controls", "RetryPolicy(count=5)", f"{RetryPolicy(count=5)!r}", CONTROLS),
        ("controls", "{}", "{}", CONTROLS),
        ("controls", "0", "0", CONTROLS),
    ],
)
def test_an_argument_of_another_type_is_refused_with_the_function_and_the_fix(
    argument: str, written: str, shown: str, fix: str
) -> None:
    given = {"name": "'t'", "owner_email": "'a@b.c'", argument: written}
    arguments = ", ".join(f"{name}={value}" for name, value in given.items())

    with pytest.raises(TaskDefinitionError) as refusal:
        imported(f"@task({arguments})\ndef build(params: Params) -> Result: ...")

    assert str(refusal.value) == f"task function `pipeline.build` has {argument}={shown}: {fix}"


def test_a_second_task_of_a_module_is_refused_at_import() -> None:
    with pytest.raises(TaskDefinitionError) as refusal:
        imported(
            "@alone\ndef build(params: Params) -> Result: ...\n@alone\ndef check(params: Params) -> Result: ...\n",
        )

    problem = "is the second task of its module after `build`: one task a module"
    assert str(refusal.value) == f"task function `pipeline.check` {problem}"
