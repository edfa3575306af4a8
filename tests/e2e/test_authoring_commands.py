"""The installed command, as an author uses it. No server is asked here but where Conductor is the point."""

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.conftest import Perago, Servers

ROOT = Path(__file__).parents[2]


def write_task(folder: Path, name: str, module: str = "build", retries: int = 3) -> None:
    (folder / f"{module}.py").write_text(
        f"""
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, WorkspaceSpec, require_glob, task

class Params(BaseModel):
    limit: int

class Result(BaseModel):
    row_count: int

@task(name={name!r}, owner_email="data@example.com",
      workspace=WorkspaceSpec(prefix="/features", pre=[require_glob("raw/*.csv")]),
      controls=TaskControls(retry=RetryPolicy(count={retries})))
def build(workspace: Path, params: Params) -> Result:
    return Result(row_count=params.limit)
"""
    )


def test_help_teaches_every_command(perago: Perago) -> None:
    told = perago("--help")

    assert told.returncode == 0
    for command in ("new", "check", "extract", "register", "demo", "dev"):
        assert command in told.stdout
        assert perago(command, "--help").returncode == 0


def test_a_usage_error_exits_with_2(perago: Perago) -> None:
    assert perago("check").returncode == 2
    assert perago("fly").returncode == 2


def test_check_accepts_a_good_module_by_name_and_by_path(perago: Perago, tmp_path: Path) -> None:
    write_task(tmp_path, "features.build")

    for module in ("build", "build.py"):
        told = perago("check", module)
        assert (told.returncode, told.stderr) == (0, "")
        assert "task features.build is well declared" in told.stdout


@pytest.mark.parametrize(
    ("source", "told"),
    [
        pytest.param(
            "import nowhere_to_be_found", "imports 'nowhere_to_be_found', which is not installed", id="import"
        ),
        pytest.param("x = 1", "must define exactly one task, found no task", id="no task"),
        pytest.param("def broken(:", "SyntaxError", id="syntax"),
        pytest.param("from perago import RetryPolicy\nRetryPolicy(count=99)", "count: ", id="model"),
        pytest.param("raise ValueError('on purpose')", "build.py, line 1", id="raises"),
    ],
)
def test_a_users_mistake_is_one_error_line_and_no_traceback(
    perago: Perago, tmp_path: Path, source: str, told: str
) -> None:
    (tmp_path / "build.py").write_text(source)

    refused = perago("check", "build")

    assert refused.returncode == 1
    assert refused.stderr.startswith("error: ")
    assert told in refused.stderr
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""


def test_check_names_each_wrong_path_of_a_workflow(perago: Perago, tmp_path: Path) -> None:
    write_task(tmp_path, "features.build")
    workspace = {"repository": "r", "branch": "main", "ref_type": "commit", "ref": "${workflow.input.ref}"}
    first = {"workspace": workspace, "params": {"limit": 3}}
    second = {"workspace": "${first.output.workspace}", "params": {"limit": "${first.output.result.rows}"}}
    tasks = [
        {"name": "features.build", "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": given}
        for reference, given in (("first", first), ("second", second))
    ]
    (tmp_path / "wf.json").write_text(json.dumps({"name": "wf", "tasks": tasks}))

    refused = perago("check", "build", "--workflow", "wf.json")

    assert refused.returncode == 1
    assert refused.stderr.count("error: ") == 1
    for part in ("second", "params.limit", "${first.output.result.rows}", "row_count"):
        assert part in refused.stderr


def test_check_reads_a_workflow_that_an_editor_saved_with_a_byte_order_mark(perago: Perago, tmp_path: Path) -> None:
    write_task(tmp_path, "features.build")
    given = {"workspace": "${workflow.input.workspace}", "params": {"limit": "${workflow.input.größe}"}}
    only = {"name": "features.build", "taskReferenceName": "only", "type": "SIMPLE", "inputParameters": given}
    text = json.dumps({"name": "wf", "tasks": [only]}, ensure_ascii=False)
    (tmp_path / "wf.json").write_text(text, encoding="utf-8-sig")

    told = perago("check", "build", "--workflow", "wf.json")

    assert (told.returncode, told.stderr) == (0, "")
    assert "wf.json: the wiring is right" in told.stdout


def test_extract_writes_the_taskdef_to_a_file_or_to_standard_output(perago: Perago, tmp_path: Path) -> None:
    write_task(tmp_path, "features.build")

    assert perago("extract", "build", "-o", "out/x.json").returncode == 0
    printed = perago("extract", "build").stdout

    assert json.loads(printed) == json.loads((tmp_path / "out" / "x.json").read_text())
    assert json.loads(printed)["inputSchema"]["name"] == "features.build.input"


def test_register_creates_then_shows_the_difference_then_has_nothing_to_do(
    perago: Perago, tmp_path: Path, servers: Servers
) -> None:
    name = f"features.{uuid.uuid4().hex[:10]}"
    url = {"CONDUCTOR_SERVER_URL": servers.environment["CONDUCTOR_SERVER_URL"]}
    write_task(tmp_path, name)

    assert perago("register", "build", env=url).stdout == f"{name}: created\n"
    assert "nothing to do" in perago("register", "build", env=url).stdout

    write_task(tmp_path, name, retries=5)
    changed = f"{name}: would be updated\n  retryCount: 3 → 5\n"
    assert perago("register", "build", "--dry-run", env=url).stdout == changed
    assert perago("register", "build", env=url).stdout == changed.replace("would be ", "")
    assert "nothing to do" in perago("register", "build", env=url).stdout


def test_register_without_an_address_names_the_variable(perago: Perago, tmp_path: Path) -> None:
    write_task(tmp_path, "features.build")

    refused = perago("register", "build")

    assert refused.returncode == 1
    assert refused.stderr.startswith("error: CONDUCTOR_SERVER_URL is not set")


def test_register_reads_the_address_from_dotenv(perago: Perago, tmp_path: Path, servers: Servers) -> None:
    write_task(tmp_path, f"features.{uuid.uuid4().hex[:10]}")
    (tmp_path / ".env").write_text(f"CONDUCTOR_SERVER_URL='{servers.environment['CONDUCTOR_SERVER_URL']}' # local\n")

    assert perago("register", "build", env={"CONDUCTOR_SERVER_URL": ""}).returncode == 0


def test_new_writes_a_task_that_checks_and_whose_test_passes(perago: Perago, tmp_path: Path) -> None:
    written = perago("new", "tasks.count_lines", "--owner-email", "me@example.com")

    assert written.returncode == 0
    assert perago("check", "tasks.count_lines").returncode == 0
    assert 'owner_email="me@example.com"' in (tmp_path / "tasks" / "count_lines.py").read_text()
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tasks/test_count_lines.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in tests.stdout, tests.stdout


def test_new_never_overwrites_and_refuses_what_is_no_module_name(perago: Perago, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("precious")

    assert "error: mine.py exists already" in perago("new", "mine").stderr
    assert (tmp_path / "mine.py").read_text() == "precious"
    for name in ("Bad-Name", "class", "../up", "a..b"):
        assert "is not a module name" in perago("new", name).stderr


def test_new_below_a_file_is_refused_with_the_fix(perago: Perago, tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("in the way")

    refused = perago("new", "tasks.mine")

    assert refused.returncode == 1
    assert refused.stderr == (
        "error: tasks.mine cannot be written below tasks (File exists): choose another name, or change into a folder"
        " of yours\n"
    )


def test_the_readme_example_runs_as_it_stands(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    example = readme.partition("```python\n")[2].partition("```")[0]
    assert len(example.splitlines()) <= 20
    (tmp_path / "example.py").write_text(example)

    ran = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ran.stdout.strip() == "kept=2", ran.stderr
