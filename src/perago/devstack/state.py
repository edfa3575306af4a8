"""What the stack remembers in its data folder: addresses, processes and credentials."""

import fcntl
import json
import os
import secrets
import string
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, SecretStr

from perago.devstack.errors import DevStackError
from perago.devstack.processes import ProcessId

ServiceName = Literal["lakefs", "conductor", "spark"]
_KEY_ALPHABET = string.ascii_uppercase + string.digits


class ServiceState(BaseModel):
    """One server: `process` is None while it is stopped, `external` when it is somebody else's."""

    url: str
    port: int | None = None
    process: ProcessId | None = None
    external: bool = False


class StackState(BaseModel):
    services: dict[ServiceName, ServiceState] = {}


class Credentials(BaseModel):
    """Generated once per data folder."""

    lakefs_access_key_id: str
    lakefs_secret_access_key: SecretStr
    lakefs_encryption_key: SecretStr


class DataFolder:
    """The one folder that holds a stack's data, logs, state and credentials."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._state = self.path / "stack.json"
        self._credentials = self.path / "credentials.json"

    def create(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError), (self.path / ".gitignore").open("x") as ignored:
            ignored.write("*\n")  # a project's own is not ours to change

    def log_of(self, service: str) -> Path:
        return self.path / "logs" / f"{service}.log"

    def read(self) -> StackState:
        try:
            return StackState.model_validate_json(self._state.read_text())
        except FileNotFoundError:
            return StackState()
        except ValueError as error:
            raise DevStackError(
                f"{self._state} is damaged: end what still runs by hand, then remove that file and run"
                " `perago dev up` again (the servers' data stays)"
            ) from error

    def write(self, state: StackState) -> None:
        _write_private(self._state, state.model_dump_json(indent=2))  # an address may carry a password or a token

    def credentials(self) -> Credentials:
        try:
            return Credentials.model_validate_json(self._credentials.read_text())
        except (FileNotFoundError, ValueError) as error:
            raise DevStackError(
                f"the credentials of {self.path} are missing or damaged: remove that folder to start afresh"
            ) from error

    def ensure_credentials(self) -> Credentials:
        # lakeFS keeps the first pair it was started with, so a lost file is never replaced by a new pair.
        if not self._credentials.exists() and not (self.path / "lakefs").exists():
            _write_private(self._credentials, json.dumps(_generated()))
        return self.credentials()

    @contextmanager
    def lock(self) -> Generator[None]:
        """One command at a time changes the stack."""
        with (self.path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _generated() -> dict[str, str]:
    return {
        "lakefs_access_key_id": "AKIA" + "".join(secrets.choice(_KEY_ALPHABET) for _ in range(16)),
        "lakefs_secret_access_key": secrets.token_urlsafe(30),
        "lakefs_encryption_key": secrets.token_urlsafe(30),
    }


def _write_private(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)
