from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from perago import RuntimeConfig, RuntimeConfigError, load_runtime_config
from perago.config import read_dotenv

VARIABLES = [
    "CONDUCTOR_SERVER_URL",
    "CONDUCTOR_AUTH_KEY",
    "CONDUCTOR_AUTH_SECRET",
    "LAKECTL_SERVER_ENDPOINT_URL",
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
    "SPARK_REMOTE",
    "PERAGO_WORKSPACE_ROOT",
    "PERAGO_LOG_ROOT",
    "PERAGO_LOG_FILE_MAX_SIZE",
    "PERAGO_LOG_RETENTION",
    "PERAGO_WORKER_ID_PREFIX",
    "PERAGO_EXECUTION_MODE",
    "PERAGO_FAILURE_REASON_MAX_LENGTH",
    "PERAGO_WORKSPACE_GC_TTL",
    "PERAGO_WORKSPACE_GC_INTERVAL",
    "PERAGO_SHUTDOWN_FORCE_KILL_AFTER",
    "PERAGO_DATA_ENGINE",
    "PERAGO_SPARK_MEMORY",
]
SECRET = "hunter2-$ecret"
HINT = "(`perago dev env` prints those of a local stack)"


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def refusal(**flags: Any) -> str:
    with pytest.raises(RuntimeConfigError) as refused:
        load_runtime_config(**flags)
    return str(refused.value)


def test_every_variable_of_the_contract_is_a_setting() -> None:
    assert [str(field.validation_alias) for field in RuntimeConfig.model_fields.values()] == VARIABLES


def test_the_defaults_are_those_of_the_contract() -> None:
    assert load_runtime_config().model_dump() == {
        "conductor_server_url": None,
        "conductor_auth_key": None,
        "conductor_auth_secret": None,
        "lakefs_endpoint_url": None,
        "lakefs_access_key_id": None,
        "lakefs_secret_access_key": None,
        "spark_remote": None,
        "workspace_root": Path(".perago/workspaces"),
        "log_root": Path(".perago/logs"),
        "log_file_max_size": 100_000_000,
        "log_retention": timedelta(days=30),
        "worker_id_prefix": "perago",
        "execution_mode": "process",
        "failure_reason_max_length": 500,
        "workspace_gc_ttl": timedelta(hours=24),
        "workspace_gc_interval": timedelta(hours=1),
        "shutdown_force_kill_after": None,
        "data_engine": "auto",
        "spark_memory": "2g",
    }


@pytest.mark.parametrize(
    ("flag", "environment", "dotenv", "seen"),
    [
        pytest.param("flag", "environment", "dotenv", "flag", id="flag first"),
        pytest.param(None, "environment", "dotenv", "environment", id="then the environment"),
        pytest.param(None, None, "dotenv", "dotenv", id="then .env"),
        pytest.param(None, None, None, "perago", id="then the default"),
        pytest.param("flag", None, None, "flag", id="flag alone"),
        pytest.param("", "environment", "dotenv", "environment", id="empty flag"),
        pytest.param(None, "", "dotenv", "dotenv", id="empty in the environment"),
        pytest.param(None, None, "", "perago", id="empty in .env"),
        pytest.param("", "", "", "perago", id="empty everywhere"),
    ],
)
def test_flags_go_before_the_environment_before_dotenv_before_defaults(
    monkeypatch: pytest.MonkeyPatch, flag: str | None, environment: str | None, dotenv: str | None, seen: str
) -> None:
    if environment is not None:
        monkeypatch.setenv("PERAGO_WORKER_ID_PREFIX", environment)
    if dotenv is not None:
        Path(".env").write_text(f"PERAGO_WORKER_ID_PREFIX={dotenv}\n")

    assert load_runtime_config(worker_id_prefix=flag).worker_id_prefix == seen


@pytest.mark.parametrize("variable", VARIABLES)
def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    unset = load_runtime_config()

    monkeypatch.setenv(variable, "")
    Path(".env").write_text(f"{variable}=\n{variable}=''\n")

    assert load_runtime_config() == unset


def test_variables_of_others_and_of_other_case_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("perago_worker_id_prefix", "lower")
    monkeypatch.setenv("PERAGO_NO_SUCH_SETTING", "x")
    Path(".env").write_text("OTHER=1\n")

    assert load_runtime_config().worker_id_prefix == "perago"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        pytest.param("NAME=plain", "plain", id="plain"),
        pytest.param("NAME='single quoted'", "single quoted", id="single quotes"),
        pytest.param('NAME="double quoted"', "double quoted", id="double quotes"),
        pytest.param("NAME='a \"b\" c'", 'a "b" c', id="quotes in quotes"),
        pytest.param("export NAME=plain", "plain", id="export"),
        pytest.param("  NAME = plain  ", "plain", id="spaces around"),
        pytest.param("NAME=two words", "two words", id="spaces within"),
        pytest.param("NAME=plain # why", "plain", id="comment after"),
        pytest.param("NAME='a # b' # why", "a # b", id="hash in quotes"),
        pytest.param("NAME=a#b", "a#b", id="hash in a value"),
        pytest.param("# NAME=other\nNAME=plain", "plain", id="comment line"),
        pytest.param("\n\nNAME=plain\n\n", "plain", id="blank lines"),
        pytest.param("NAME=a$HOME", "a$HOME", id="dollar"),
        pytest.param("NAME=a${HOME}b", "a${HOME}b", id="dollar and braces"),
        pytest.param('NAME="a$HOME"', "a$HOME", id="dollar in double quotes"),
        pytest.param("NAME=http://h:1/?a=b&c=d", "http://h:1/?a=b&c=d", id="equals signs"),
        pytest.param("NAME=first\nNAME=last", "last", id="last wins"),
        pytest.param("NAME=", "", id="empty"),
        pytest.param("NAME=ключ", "ключ", id="letters of any script"),
        pytest.param("NAME=plain\r\n", "plain", id="line end of Windows"),
    ],
)
def test_a_dotenv_line_is_read_as_shells_write_it_and_dollars_mean_themselves(line: str, value: str) -> None:
    Path(".env").write_text(line)

    assert read_dotenv(Path(".env")) == {"NAME": value}


def test_a_missing_dotenv_file_sets_nothing() -> None:
    assert read_dotenv(Path("no.env")) == {}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_dotenv_file_that_is_not_utf8_is_refused_with_the_fix(encoding: str) -> None:
    Path(".env").write_bytes(f"CONDUCTOR_AUTH_SECRET=é{SECRET}\n".encode(encoding))

    assert refusal() == ".env is not UTF-8 text: save it as UTF-8"


def test_a_dotenv_secret_reaches_the_setting_unaltered() -> None:
    Path(".env").write_text(f"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY='{SECRET}'\n")

    secret = load_runtime_config().lakefs_secret_access_key

    assert secret is not None
    assert secret.get_secret_value() == SECRET


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(f"CONDUCTOR_AUTH_SECRET: {SECRET}\n", "line 1 is not NAME=value", id="colon"),
        pytest.param(f"A=1\nB=2\n{SECRET} two\n", "line 3 is not NAME=value", id="later line"),
        pytest.param(f"A=1\n\n# why\n\n{SECRET} two\n", "line 5 is not NAME=value", id="after blank lines"),
        pytest.param(f"A=1\nS='{SECRET}\nB=2\n", "line 2 cannot be read: check its quotes", id="open single quote"),
        pytest.param(f'\n\nS="{SECRET}\n', "line 3 cannot be read: check its quotes", id="open double quote"),
        pytest.param(f"S='{SECRET}' x\n", "line 1 cannot be read: check its quotes", id="text after the quotes"),
        pytest.param(f"={SECRET}\n", "line 1 cannot be read: check its quotes", id="no name"),
    ],
)
def test_a_broken_dotenv_line_is_named_by_number_and_never_shown(text: str, problem: str) -> None:
    Path(".env").write_text(text)

    assert refusal() == f".env {problem}"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("30s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("24h", timedelta(hours=24)),
        ("30d", timedelta(days=30)),
        ("1h30m", timedelta(minutes=90)),
        ("1h 30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("90", timedelta(seconds=90)),
        ("0.5", timedelta(seconds=0.5)),
        (" 5 M ", timedelta(minutes=5)),
    ],
)
def test_a_duration_is_numbers_with_units(monkeypatch: pytest.MonkeyPatch, written: str, read: timedelta) -> None:
    monkeypatch.setenv("PERAGO_WORKSPACE_GC_TTL", written)

    assert load_runtime_config().workspace_gc_ttl == read


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("100MB", 100_000_000),
        ("100mb", 100_000_000),
        ("1GiB", 2**30),
        ("1.5 kB", 1500),
        ("4096", 4096),
        ("10B", 10),
    ],
)
def test_a_size_is_a_number_with_a_unit(monkeypatch: pytest.MonkeyPatch, written: str, size: int) -> None:
    monkeypatch.setenv("PERAGO_LOG_FILE_MAX_SIZE", written)

    assert load_runtime_config().log_file_max_size == size


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        *(
            pytest.param(
                "PERAGO_LOG_RETENTION", value, "write a duration such as 30s, 15m, 24h or 30d", id=f"duration {value}"
            )
            for value in ("soon", "30x", "-5m", "5m!", "m5", "1e3", "P1D")
        ),
        pytest.param("PERAGO_WORKSPACE_GC_INTERVAL", "0s", "Input should be greater than", id="no duration"),
        pytest.param("PERAGO_WORKSPACE_GC_TTL", "99999999999d", "too long", id="duration beyond reason"),
        pytest.param("PERAGO_WORKSPACE_GC_TTL", "9" * 400, "too long", id="number beyond reason"),
        pytest.param("PERAGO_SHUTDOWN_FORCE_KILL_AFTER", "later", "write a duration such as", id="optional duration"),
        *(
            pytest.param("PERAGO_LOG_FILE_MAX_SIZE", value, "write a size such as 100MB or 1GiB", id=f"size {value}")
            for value in ("big", "-1MB", "10 apples", "MB")
        ),
        pytest.param("PERAGO_LOG_FILE_MAX_SIZE", "0", "Input should be greater than 0", id="no size"),
        *(
            pytest.param(variable, "localhost:8000", "write an address such as http://localhost:8080", id=variable)
            for variable in ("CONDUCTOR_SERVER_URL", "LAKECTL_SERVER_ENDPOINT_URL")
        ),
        pytest.param("SPARK_REMOTE", "localhost:15002", "write an address such as sc://localhost:15002", id="Spark"),
        pytest.param("PERAGO_EXECUTION_MODE", "fork", "Input should be 'process' or 'thread'", id="mode"),
        pytest.param("PERAGO_DATA_ENGINE", "dask", "Input should be 'auto', 'spark' or 'local'", id="engine"),
        pytest.param("PERAGO_SPARK_MEMORY", "lots", "write a size such as 2g", id="memory"),
        pytest.param("PERAGO_FAILURE_REASON_MAX_LENGTH", "long", "Input should be a valid integer", id="length"),
        pytest.param("PERAGO_FAILURE_REASON_MAX_LENGTH", "0", "Input should be greater than or equal", id="no length"),
    ],
)
@pytest.mark.parametrize("level", ["environment", "dotenv"])
def test_a_wrong_value_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, level: str, variable: str, value: str, problem: str
) -> None:
    if level == "environment":
        monkeypatch.setenv(variable, value)
    else:
        Path(".env").write_text(f"{variable}={value}\n")

    assert refusal().startswith(f"{variable}: {problem}")


def test_a_wrong_flag_is_refused_by_its_variable() -> None:
    assert refusal(execution_mode="fork").startswith("PERAGO_EXECUTION_MODE: ")


def test_every_wrong_value_is_named_at_once_and_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.setenv(variable, SECRET)

    message = refusal()

    assert {part.partition(":")[0] for part in message.split("; ")} == {
        "CONDUCTOR_SERVER_URL",
        "LAKECTL_SERVER_ENDPOINT_URL",
        "SPARK_REMOTE",
        "PERAGO_LOG_FILE_MAX_SIZE",
        "PERAGO_LOG_RETENTION",
        "PERAGO_EXECUTION_MODE",
        "PERAGO_FAILURE_REASON_MAX_LENGTH",
        "PERAGO_WORKSPACE_GC_TTL",
        "PERAGO_WORKSPACE_GC_INTERVAL",
        "PERAGO_SHUTDOWN_FORCE_KILL_AFTER",
        "PERAGO_DATA_ENGINE",
        "PERAGO_SPARK_MEMORY",
    }
    assert SECRET not in message


def test_secrets_are_not_shown_in_any_form_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_AUTH_SECRET", SECRET)
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", SECRET)

    config = load_runtime_config()

    for shown in (repr(config), str(config), f"{config.model_dump()}", config.model_dump_json()):
        assert SECRET not in shown


def test_addresses_with_their_secrets_are_not_shown_with_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDUCTOR_SERVER_URL", "http://user:hush@c")
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", "http://user:hush@l")
    monkeypatch.setenv("SPARK_REMOTE", "sc://s/;token=hush")

    config = load_runtime_config()

    assert "hush" not in f"{config!r} {config}"
    assert (config.require_conductor(), config.spark_remote) == ("http://user:hush@c", "sc://s/;token=hush")


def test_settings_cannot_be_changed_once_read() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_runtime_config().data_engine = "local"  # pyright: ignore[reportAttributeAccessIssue]


LAKEFS = {
    "LAKECTL_SERVER_ENDPOINT_URL": "http://lakefs:8000",
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "key",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": SECRET,
}


@pytest.mark.parametrize("present", [[], ["LAKECTL_SERVER_ENDPOINT_URL"], list(LAKEFS)[1:], list(LAKEFS)[:2]])
def test_missing_lakefs_settings_are_all_named(monkeypatch: pytest.MonkeyPatch, present: list[str]) -> None:
    for variable in present:
        monkeypatch.setenv(variable, LAKEFS[variable])
    missing = [variable for variable in LAKEFS if variable not in present]

    with pytest.raises(RuntimeConfigError) as refused:
        load_runtime_config().require_lakefs()

    verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
    fix = f"export {them} or add to .env {HINT}"
    assert str(refused.value) == f"{' and '.join(missing)} {verb} not set: {fix}"


def test_complete_lakefs_settings_are_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in LAKEFS.items():
        monkeypatch.setenv(variable, value)

    endpoint, key, secret = load_runtime_config().require_lakefs()

    assert (endpoint, key, secret.get_secret_value()) == ("http://lakefs:8000", "key", SECRET)


def test_a_user_in_the_address_of_lakefs_is_of_no_use_and_not_handed_over() -> None:
    config = load_runtime_config(
        lakefs_endpoint_url="https://user:hush@lakefs:8000/api/v1",
        lakefs_access_key_id="k",
        lakefs_secret_access_key="s",
    )

    assert config.require_lakefs()[0] == "https://lakefs:8000/api/v1"


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        pytest.param({}, "CONDUCTOR_SERVER_URL", id="nothing"),
        pytest.param(
            {"conductor_server_url": "http://c", "conductor_auth_key": "k"}, "CONDUCTOR_AUTH_SECRET", id="key alone"
        ),
        pytest.param(
            {"conductor_server_url": "http://c", "conductor_auth_secret": SECRET},
            "CONDUCTOR_AUTH_KEY",
            id="secret alone",
        ),
    ],
)
def test_missing_conductor_settings_are_named(given: dict[str, str], missing: str) -> None:
    with pytest.raises(RuntimeConfigError) as refused:
        load_runtime_config(**given).require_conductor()

    assert str(refused.value) == f"{missing} is not set: export it or add to .env {HINT}"


@pytest.mark.parametrize("auth", [{}, {"conductor_auth_key": "k", "conductor_auth_secret": SECRET}])
def test_conductor_is_reached_with_or_without_a_key(auth: dict[str, str]) -> None:
    assert load_runtime_config(conductor_server_url="http://c/api", **auth).require_conductor() == "http://c/api"
