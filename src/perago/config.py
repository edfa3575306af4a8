"""What an operator sets: flags first, then the environment, then `.env`, then defaults."""

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dotenv.parser import parse_stream
from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from perago.addresses import http_address, spark_address, without_user
from perago.authoring.errors import RuntimeConfigError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_DURATION_HELP = "write a duration such as 30s, 15m, 24h or 30d"


def parse_duration(value: Any) -> Any:
    """Turn `1h30m` into a timedelta; a bare number is seconds."""
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        text += "s"
    parts = _DURATION.findall(text)
    if not parts or _DURATION.sub("", text).strip():
        raise ValueError(_DURATION_HELP)
    try:
        return sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in parts), timedelta())
    except OverflowError:
        raise ValueError(f"too long: {_DURATION_HELP}") from None


def _existing_notation(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"\s*\d+(\.\d+)?\s*[kmgtp]?i?b?\s*", value, re.IGNORECASE):
        raise ValueError("write a size such as 100MB or 1GiB")
    return value


def _of_java(value: str) -> str:
    if not re.fullmatch(r"\d+[kmgKMG]", value):
        raise ValueError("write a size such as 2g or 1500m, as Java takes it")
    return value


HttpAddress = Annotated[str, AfterValidator(http_address)]
SparkAddress = Annotated[str, AfterValidator(spark_address)]
Duration = Annotated[timedelta, BeforeValidator(parse_duration), Field(gt=timedelta())]
Size = Annotated[ByteSize, BeforeValidator(_existing_notation), Field(gt=0)]


def _from(variable: str, default: Any = None, *, shown: bool = True) -> Any:
    return Field(default=default, validation_alias=variable, validate_default=True, repr=shown)


class RuntimeConfig(BaseSettings):
    """Every setting of a worker; an empty value means unset. Secrets never show in a repr or a log.

    Nor do addresses: each may carry a password or a token.
    """

    model_config = SettingsConfigDict(
        env_ignore_empty=True, extra="ignore", frozen=True, populate_by_name=True, case_sensitive=True
    )

    conductor_server_url: HttpAddress | None = _from("CONDUCTOR_SERVER_URL", shown=False)
    conductor_auth_key: str | None = _from("CONDUCTOR_AUTH_KEY")
    conductor_auth_secret: SecretStr | None = _from("CONDUCTOR_AUTH_SECRET")
    lakefs_endpoint_url: HttpAddress | None = _from("LAKECTL_SERVER_ENDPOINT_URL", shown=False)
    lakefs_access_key_id: str | None = _from("LAKECTL_CREDENTIALS_ACCESS_KEY_ID")
    lakefs_secret_access_key: SecretStr | None = _from("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY")
    spark_remote: SparkAddress | None = _from("SPARK_REMOTE", shown=False)
    workspace_root: Path = _from("PERAGO_WORKSPACE_ROOT", Path(".perago/workspaces"))
    log_root: Path = _from("PERAGO_LOG_ROOT", Path(".perago/logs"))
    log_file_max_size: Size = _from("PERAGO_LOG_FILE_MAX_SIZE", "100MB")
    log_retention: Duration = _from("PERAGO_LOG_RETENTION", "30d")
    worker_id_prefix: str = _from("PERAGO_WORKER_ID_PREFIX", "perago")
    execution_mode: Literal["process", "thread"] = _from("PERAGO_EXECUTION_MODE", "process")
    failure_reason_max_length: Annotated[int, Field(ge=1)] = _from("PERAGO_FAILURE_REASON_MAX_LENGTH", 500)
    workspace_gc_ttl: Duration = _from("PERAGO_WORKSPACE_GC_TTL", "24h")
    workspace_gc_interval: Duration = _from("PERAGO_WORKSPACE_GC_INTERVAL", "1h")
    shutdown_force_kill_after: Duration | None = _from("PERAGO_SHUTDOWN_FORCE_KILL_AFTER")
    data_engine: Literal["auto", "spark", "local"] = _from("PERAGO_DATA_ENGINE", "auto")
    spark_memory: Annotated[str, AfterValidator(_of_java)] = _from("PERAGO_SPARK_MEMORY", "2g")

    def require_conductor(self) -> str:
        """Conductor's address, or an error naming the variable to set."""
        self._require("conductor_server_url")
        if bool(self.conductor_auth_key) != bool(self.conductor_auth_secret):
            self._require("conductor_auth_key", "conductor_auth_secret")
        return str(self.conductor_server_url)

    def require_lakefs(self) -> tuple[str, str, SecretStr]:
        """The lakeFS endpoint, key and secret, or an error naming every variable still to set."""
        self._require("lakefs_endpoint_url", "lakefs_access_key_id", "lakefs_secret_access_key")
        assert self.lakefs_secret_access_key is not None  # noqa: S101 - required above, told to the type checker
        # lakeFS takes its key the way a user in an address would go, so one there is of no use to anybody.
        endpoint = without_user(str(self.lakefs_endpoint_url))
        return endpoint, str(self.lakefs_access_key_id), self.lakefs_secret_access_key

    def _require(self, *names: str) -> None:
        missing = [_variable(name) for name in names if getattr(self, name) is None]
        if missing:
            raise RuntimeConfigError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set: export"
                f" {'it' if len(missing) == 1 else 'them'} or add to .env (`perago dev env` prints those of a"
                " local stack)"
            )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _Environment(settings_cls), _DotEnv(settings_cls, Path(".env"))


def load_runtime_config(**flags: Any) -> RuntimeConfig:
    """Read the settings; a flag that is None or empty was not given.

    Raises `RuntimeConfigError` naming the variable.
    """
    try:
        return RuntimeConfig(**{name: value for name, value in flags.items() if value not in (None, "")})
    except ValidationError as error:
        problems = [
            f"{_variable(str(entry['loc'][0]))}: {str(entry['msg']).removeprefix('Value error, ')}"
            for entry in error.errors(include_url=False, include_input=False)
        ]
        raise RuntimeConfigError("; ".join(problems)) from None


def read_dotenv(path: Path) -> dict[str, str]:
    """The variables of a `.env` file, taken literally: `$` means itself."""
    if not path.is_file():
        return {}
    try:
        content = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise RuntimeConfigError(f"{path} is not UTF-8 text: save it as UTF-8") from None
    found: dict[str, str] = {}
    for binding in parse_stream(StringIO(content)):
        if binding.error:
            # The parser counts from the blank lines before. The text itself may be a secret, so it is not shown.
            text = binding.original.string
            line = binding.original.line + text[: len(text) - len(text.lstrip())].count("\n")
            problem = "cannot be read: check its quotes" if "=" in text else "is not NAME=value"
            raise RuntimeConfigError(f"{path} line {line} {problem}")
        if binding.key is not None and binding.value is not None:
            found[binding.key] = binding.value
    return found


class _Environment(EnvSettingsSource):
    """The documented variables and no others: a field's own name is for flags."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return _settings_in(os.environ)


class _DotEnv(EnvSettingsSource):
    """pydantic-settings' own reader expands `$NAME` and passes over broken lines; secrets bear neither."""

    def __init__(self, settings_cls: type[BaseSettings], path: Path) -> None:
        self._path = path
        super().__init__(settings_cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return _settings_in(read_dotenv(self._path))


def _settings_in(variables: Mapping[str, str]) -> dict[str, str | None]:
    known = {_variable(name) for name in RuntimeConfig.model_fields}
    return {name: value for name, value in variables.items() if name in known and value != ""}


def _variable(name: str) -> str:
    field: FieldInfo | None = RuntimeConfig.model_fields.get(name)
    alias = field.validation_alias if field else None
    return str(alias) if alias else name
