import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago import TaskDefinitionError, load_module_task

TASK = """
from pydantic import BaseModel
from perago import task

class Params(BaseModel):
    limit: int

@task(name="features.build", owner_email="data@example.com")
def build(params: Params) -> Params:
    return params
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project as the current directory, which leaves no trace in this interpreter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != ""])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in repr(sys.modules[name]):
            del sys.modules[name]


def write(path: str, source: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(source)


def refusal(module: str) -> str:
    with pytest.raises(TaskDefinitionError) as refused:
        load_module_task(module)
    message = str(refused.value)
    assert message == message.strip()
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(
    "module",
    ["loaded_flows.build", "loaded_flows/build.py", "./loaded_flows/build.py", "loaded_flows/build"],
)
def test_a_module_is_named_by_dots_or_by_its_path(module: str) -> None:
    write("loaded_flows/build.py", TASK)

    definition = load_module_task(module)

    assert definition.name == "features.build"
    assert definition.function.__module__ == "loaded_flows.build"


def test_an_absolute_path_below_the_current_directory_is_taken(project: Path) -> None:
    write("loaded_absolute.py", TASK)

    assert load_module_task(str(project / "loaded_absolute.py")).name == "features.build"


@pytest.mark.parametrize(
    "module", ["loaded_package", "loaded_package/", "loaded_package/__init__.py", "loaded_package/__init__"]
)
def test_a_package_is_a_module_too(module: str) -> None:
    write("loaded_package/__init__.py", TASK)

    assert load_module_task(module).function.__module__ == "loaded_package"


def test_a_file_is_found_through_a_link_to_the_current_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    write("loaded_through.py", TASK)
    link = tmp_path_factory.mktemp("links") / "project"
    link.symlink_to(Path.cwd(), target_is_directory=True)

    assert load_module_task(str(link / "loaded_through.py")).function.__module__ == "loaded_through"


def test_a_linked_file_is_imported_by_the_name_it_has_here(project: Path) -> None:
    write("..data/original.py", TASK)
    Path("loaded_link.py").symlink_to(Path("..data") / "original.py")

    assert load_module_task("loaded_link.py").function.__module__ == "loaded_link"
    assert load_module_task(str(project / "loaded_link.py")).name == "features.build"


def test_the_current_directory_is_importable_and_stays_so(project: Path) -> None:
    write("loaded_here.py", TASK.replace("from perago", "from loaded_helper import LIMIT\nfrom perago"))
    write("loaded_helper.py", "LIMIT = 5\n")
    assert str(project) not in sys.path

    load_module_task("loaded_here")
    load_module_task("loaded_here.py")

    assert sys.path.count(str(project)) == 1


@pytest.mark.parametrize("module", ["../elsewhere.py", "/nowhere/elsewhere.py"])
def test_a_path_outside_the_current_directory_is_refused_with_the_fix(module: str) -> None:
    assert refusal(module) == f"'{module}' is outside the current directory: change into the folder that holds it"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("missing_flow", "missing_flow"),
        ("missing_flows.build", "missing_flows.build"),
        ("missing_flows/build.py", "missing_flows.build"),
        ("present_flows.build", "present_flows.build"),
        ("present_flow.build", "present_flow.build"),
        ("present flow", "present flow"),
        ("present_flow:build", "present_flow:build"),
        (".present_flow", ".present_flow"),
        ("./", ""),
        ("", ""),
    ],
)
def test_a_missing_module_is_refused_with_the_fix(module: str, name: str) -> None:
    write("present_flows/__init__.py", "")
    write("present_flow.py", "")

    fix = "run from the folder that holds it, or correct the name"
    assert refusal(module) == f"cannot find module '{name}': {fix}"


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("import no_such_library", "no_such_library"),
        ("import no_such_library.part", "no_such_library"),
        ("from no_such_library import thing", "no_such_library"),
        ("import json.no_such_part", "json.no_such_part"),
    ],
)
def test_a_missing_dependency_is_named(statement: str, missing: str) -> None:
    write("depending_flow.py", f"{statement}\n{TASK}")

    assert refusal("depending_flow") == f"module 'depending_flow' imports '{missing}', which is not installed here"


def test_a_missing_dependency_of_a_dependency_is_named() -> None:
    write("depending_twice.py", "import depending_once\n")
    write("depending_once.py", "import no_such_library\n")

    assert (
        refusal("depending_twice") == "module 'depending_twice' imports 'no_such_library', which is not installed here"
    )


def test_a_syntax_error_is_given_with_file_and_line() -> None:
    write("unreadable_flow.py", "x = 1\n\ndef build(:\n")

    message = refusal("unreadable_flow")

    assert (
        message == "module 'unreadable_flow' fails on import: SyntaxError: invalid syntax (unreadable_flow.py, line 3)"
    )


@pytest.mark.parametrize(
    ("source", "line", "problem"),
    [
        pytest.param("x = 1\n1 / 0\n", 2, "ZeroDivisionError: division by zero", id="mistake"),
        pytest.param("raise ValueError('two\\n lines')", 1, "ValueError: two lines", id="message of two lines"),
        pytest.param("\n\nassert False", 3, "AssertionError", id="no message"),
        pytest.param("raise SystemExit(3)", 1, "SystemExit: 3", id="exit"),
        pytest.param("import sys\nsys.exit()", 2, "SystemExit", id="silent exit"),
        pytest.param(
            "import json\njson.loads('')",
            2,
            "JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
            id="raised within a library",
        ),
        pytest.param(
            "from perago import no_such_name",
            1,
            f"ImportError: cannot import name 'no_such_name' from 'perago' ({sys.modules['perago'].__file__})",
            id="wrong name of an import",
        ),
        pytest.param(
            "from perago import task\n\n@task\ndef build(): ...",
            3,
            "TypeError: task() takes 0 positional arguments but 1 was given",
            id="decorator without a call",
        ),
    ],
)
def test_an_error_at_import_is_given_with_the_author_s_file_and_line(source: str, line: int, problem: str) -> None:
    write("failing_flow.py", source)

    where = f"(failing_flow.py, line {line})"
    assert refusal("failing_flow") == f"module 'failing_flow' fails on import {where}: {problem}"


def test_an_error_in_a_module_imported_is_given_where_it_happened() -> None:
    write("failing_outside.py", "import failing_inside\n")
    write("failing_inside.py", "\n\n1 / 0\n")

    where = "(failing_inside.py, line 3)"
    assert refusal("failing_outside").startswith(f"module 'failing_outside' fails on import {where}: ZeroDivision")


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        pytest.param(
            "RetryPolicy(count=99)", "RetryPolicy: count: Input should be less than or equal to 10", id="out of bounds"
        ),
        pytest.param("RetryPolicy(tries=3)", "RetryPolicy: tries: unknown field", id="unknown field"),
        pytest.param(
            "ExecutionLimits(rate_limit_per_frequency=1)",
            "ExecutionLimits: rate_limit_frequency_in_seconds and rate_limit_per_frequency go together:"
            " set both or neither",
            id="rule over fields",
        ),
        pytest.param(
            "WorkspaceSpec(prefix='a//b')",
            "WorkspaceSpec: prefix: prefix 'a//b' has an empty part: no double or trailing '/'",
            id="prefix",
        ),
        pytest.param(
            "WorkspaceSpec(pre=['raw'])",
            "WorkspaceSpec: pre: 'raw' is no guardrail: write one like require_file('out.csv')",
            id="no guardrail",
        ),
        pytest.param(
            "require_file('/raw')", "require_file path '/raw' must be relative: write 'raw'", id="guardrail's path"
        ),
        pytest.param(
            "require_glob('*', '1')",
            "require_glob('*'): min_count must be a whole number, 0 or more, got '1'",
            id="guardrail's count",
        ),
    ],
)
def test_a_refused_declaration_is_given_with_line_and_field(statement: str, problem: str) -> None:
    write("declaring_flow.py", f"from perago import *\n\n{statement}\n")

    assert refusal("declaring_flow") == f"module 'declaring_flow' (declaring_flow.py, line 3): {problem}"


def test_a_refused_task_is_given_with_its_line() -> None:
    write("misshapen_flow.py", TASK.replace("-> Params", ""))

    problem = "does not annotate its return: write `-> Result` with a Pydantic model"
    where = "module 'misshapen_flow' (misshapen_flow.py, line 8)"
    assert refusal("misshapen_flow") == f"{where}: task function `misshapen_flow.build` {problem}"


def test_a_module_that_failed_once_can_be_corrected_and_loaded() -> None:
    write("corrected_flow.py", "import no_such_library\n")
    refusal("corrected_flow")

    write("corrected_flow.py", f"# corrected\n{TASK}")

    assert load_module_task("corrected_flow").name == "features.build"


def test_a_module_without_a_task_is_refused_with_the_fix() -> None:
    write("taskless_flow.py", "x = 1\n")

    assert refusal("taskless_flow") == (
        "module 'taskless_flow' must define exactly one task, found no task: decorate one function with @task"
    )


@pytest.mark.parametrize(
    ("module", "found"),
    [("platform", platform.__file__), ("platform.py", platform.__file__), ("time", "built into Python")],
    ids=["by name", "by path", "built in"],
)
def test_a_file_hidden_by_a_module_of_python_s_own_is_named_with_the_fix(module: str, found: str) -> None:
    name = module.removesuffix(".py")
    write(f"{name}.py", TASK)

    assert refusal(module) == f"module '{name}' is {found}, which hides {name}.py: rename your file"


def test_a_task_imported_from_elsewhere_does_not_count() -> None:
    write("original_flow.py", TASK)
    write("importing_flow.py", "from original_flow import build\n")

    assert "found no task" in refusal("importing_flow")


def test_a_task_beside_an_imported_one_is_the_module_s_own() -> None:
    write("first_flow.py", TASK)
    write("second_flow.py", "from first_flow import build as first\n" + TASK.replace("features.build", "features.next"))

    assert load_module_task("second_flow").name == "features.next"


def test_a_task_under_two_names_is_one_task() -> None:
    write("aliased_flow.py", f"{TASK}\nsame = build\n")

    assert load_module_task("aliased_flow").name == "features.build"


def test_a_second_task_is_refused_when_it_is_declared() -> None:
    write("double_flow.py", TASK + TASK.replace("def build", "def check"))

    problem = "is the second task of its module after `build`: one task a module"
    where = "module 'double_flow' (double_flow.py, line 18)"
    assert refusal("double_flow") == f"{where}: task function `double_flow.check` {problem}"


def test_two_tasks_made_by_a_function_are_refused_by_name() -> None:
    write(
        "made_flow.py",
        "from pydantic import BaseModel\nfrom perago import task\n"
        "class Params(BaseModel): ...\n"
        "def made(name):\n"
        "    @task(name=name, owner_email='a@b.c')\n"
        "    def build(params: Params) -> Params: ...\n"
        "    return build\n"
        "one, two = made('flow.one'), made('flow.two')\n",
    )

    assert refusal("made_flow") == (
        "module 'made_flow' must define exactly one task, found `flow.one` and `flow.two`: decorate one function"
        " with @task"
    )


def test_an_interrupt_while_importing_is_not_taken_for_a_mistake() -> None:
    write("interrupted_flow.py", "raise KeyboardInterrupt\n")

    with pytest.raises(KeyboardInterrupt):
        load_module_task("interrupted_flow")
