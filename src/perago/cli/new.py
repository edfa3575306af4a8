import re
import subprocess
from importlib import resources
from keyword import iskeyword
from pathlib import Path
from typing import Annotated

import typer

from perago.authoring.errors import PeragoError

_NOBODY = "you@example.com"
Name = Annotated[str, typer.Argument(metavar="NAME", help="The new module, as `clean_orders` or `tasks.clean_orders`.")]
Owner = Annotated[str | None, typer.Option("--owner-email", help="Who owns the task; git's `user.email` unless given.")]


def new(name: Name, owner_email: Owner = None) -> None:
    """Write a working task module and its test, ready to be changed.

    Example: `perago new tasks.clean_orders` writes `tasks/clean_orders.py` and `tasks/test_clean_orders.py`.
    """
    if not all(re.fullmatch(r"[a-z_][a-z0-9_]*", part) and not iskeyword(part) for part in name.split(".")):
        raise PeragoError(
            f"'{name}' is not a module name: use lower-case words like clean_orders or tasks.clean_orders"
        )
    *folders, stem = name.split(".")
    folder = Path(*folders)
    files = {
        folder / f"{stem}.py": _template("task.py.txt", name, stem, owner_email or _git_email()),
        folder / f"test_{stem}.py": _template("test_task.py.txt", name, stem, ""),
    }
    for path in files:
        if path.exists():
            raise PeragoError(f"{path} exists already: choose another name, or remove it first")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text)
            typer.echo(f"wrote {path}")
    except OSError as error:
        raise PeragoError(
            f"{name} cannot be written below {folder} ({error.strerror}): choose another name, or change into a folder"
            " of yours"
        ) from error
    typer.echo(f"next: perago check {name}, and python -m pytest {folder / f'test_{stem}.py'}")


def _template(file: str, name: str, stem: str, owner_email: str) -> str:
    text = (resources.files("perago.cli") / "templates" / file).read_text()
    values = {"MODULE": name, "STEM": stem, "TASK": name, "OWNER": owner_email}
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _git_email() -> str:
    try:
        answer = subprocess.run(["git", "config", "user.email"], capture_output=True, text=True, check=False)
    except OSError:
        return _NOBODY
    told = answer.stdout.strip()
    return told if re.fullmatch(r"[^@\s]+@[^@\s]+", told) else _NOBODY
