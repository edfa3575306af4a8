import json
import os
import sys
from pathlib import Path

from tests.conftest import Perago, Servers


def test_the_whole_life_of_a_stack_by_command(perago: Perago, tmp_path: Path, servers: Servers) -> None:
    conductor = servers.environment["CONDUCTOR_SERVER_URL"]

    assert "no stack in .perago/dev" in perago("dev", "status").stdout
    up = perago("dev", "up", "--conductor-url", conductor)
    try:
        assert up.returncode == 0, up.stderr
        assert "lakeFS login: AKIA" in up.stdout

        reports = json.loads(perago("dev", "status", "--json").stdout)
        assert [(report["name"], report["health"]) for report in reports] == [
            ("lakefs", "healthy"),
            ("conductor", "healthy"),
        ]
        exports = perago("dev", "env").stdout
        assert f"export LAKECTL_SERVER_ENDPOINT_URL={reports[0]['url']}\n" in exports
        assert "export LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=" in exports
        assert "lakefs: " in perago("dev", "logs", "lakefs", "-n", "3").stdout
    finally:
        down = perago("dev", "down")

    assert down.stdout == "stopped lakeFS\n"
    assert perago("dev", "status").returncode == 1
    refused = perago("dev", "env")
    assert (refused.returncode, refused.stderr.startswith("error: the stack is not up")) == (1, True)


def test_the_secrets_of_an_address_are_exported_and_never_shown(perago: Perago, servers: Servers) -> None:
    host = servers.environment["CONDUCTOR_SERVER_URL"].removeprefix("http://")
    conductor = f"http://user:hush@{host}"
    spark = f"sc://{host.removesuffix('/api')}/;token=hush"  # whoever listens there will do

    up = perago("dev", "up", "--conductor-url", conductor, "--spark-remote", spark)
    try:
        assert up.returncode == 0, up.stderr
        exports = perago("dev", "env").stdout
        status = perago("dev", "status")
        as_json = perago("dev", "status", "--json")
    finally:
        assert perago("dev", "down").stdout == "stopped lakeFS\n"

    assert f"export CONDUCTOR_SERVER_URL={conductor}\n" in exports
    assert f"export SPARK_REMOTE='{spark}'\n" in exports
    for shown in (up, status, as_json):
        assert f"http://***@{host}" in shown.stdout
        assert "hush" not in shown.stdout + shown.stderr


def test_the_stack_starts_without_go_and_java_on_the_path(perago: Perago, servers: Servers, tmp_path: Path) -> None:
    """From the cache, with nothing but the interpreter's own folder on PATH, and with no way to the network."""
    nowhere = "http://127.0.0.1:9"
    env = {
        "PATH": str(Path(sys.executable).parent),
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "GOPROXY"), nowhere),
        "NO_PROXY": "127.0.0.1",
        "PERAGO_MAVEN_REPOSITORY": nowhere,
    }
    assert all(not os.access(Path(env["PATH"]) / tool, os.X_OK) for tool in ("java", "mvn", "lakefs"))

    up = perago("dev", "up", env=env)
    try:
        assert up.returncode == 0, up.stderr
        assert up.stdout.count("healthy") == 2
    finally:
        assert perago("dev", "down").stdout == "stopped Conductor, lakeFS\n"


def test_logs_of_an_unknown_server_are_refused_by_name(perago: Perago) -> None:
    refused = perago("dev", "logs", "mysql")

    assert refused.returncode == 1
    assert "there is no log of mysql" in refused.stderr


def test_a_command_whose_extra_is_missing_names_the_install_command(perago: Perago, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['platformdirs'] = None\n")

    refused = perago("dev", "status", env={"PYTHONPATH": str(tmp_path)})

    assert refused.returncode == 1
    assert refused.stderr == "error: `perago dev` needs the 'dev' extra: pip install 'perago[dev]'\n"
