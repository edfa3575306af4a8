"""From a module's name to its one task."""

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from sysconfig import get_paths
from types import ModuleType

from pydantic import ValidationError

from perago.authoring.errors import TaskDefinitionError
from perago.authoring.task import TaskDefinition, definition_of
from perago.authoring.validation import describe

# Frames of libraries, of Perago and of frozen modules: never where an author's mistake is.
_NOT_THE_AUTHORS = (
    "<",
    str(Path(__file__).parents[1]),
    *(get_paths()[name] for name in ("stdlib", "purelib", "platlib")),
)


def load_module_task(module: str) -> TaskDefinition:
    """Import a module (`tasks.build`, or `tasks/build.py` below the current directory) and return its task."""
    name = _dotted(module)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    imported = _imported(name)
    tasks = _tasks_of(imported)
    if not tasks:
        _refuse_namesake(imported)
    if len(tasks) != 1:
        found = "no task" if not tasks else " and ".join(sorted(f"`{task.name}`" for task in tasks))
        raise TaskDefinitionError(
            f"module '{name}' must define exactly one task, found {found}: decorate one function with @task"
        )
    return tasks[0]


def _tasks_of(module: ModuleType) -> list[TaskDefinition]:
    own: dict[int, TaskDefinition] = {}
    for value in vars(module).values():
        definition = definition_of(value)
        if definition is not None and definition.function.__module__ == module.__name__:
            own[id(definition)] = definition
    return list(own.values())


def _refuse_namesake(module: ModuleType) -> None:
    """Python's own module of the same name may have been imported before."""
    file = Path(*module.__name__.split(".")).with_suffix(".py")
    found = getattr(module, "__file__", None)  # built into Python, it has none
    if file.is_file() and not (found and file.samefile(found)):
        raise TaskDefinitionError(
            f"module '{module.__name__}' is {found or 'built into Python'}, which hides {file}: rename your file"
        )


def _dotted(module: str) -> str:
    if not module.endswith(".py") and "/" not in module:
        return module
    # A file that is a link, as mounted ones often are, keeps the name it has here.
    here = Path.cwd()
    for path in (Path(os.path.abspath(module)), Path(module).resolve()):  # noqa: PTH100
        if path.is_relative_to(here):
            return ".".join(path.relative_to(here).parts).removesuffix(".py").removesuffix(".__init__")
    raise TaskDefinitionError(f"'{module}' is outside the current directory: change into the folder that holds it")


def _imported(name: str) -> ModuleType:
    not_found = f"cannot find module '{name}': run from the folder that holds it, or correct the name"
    if not name or name.startswith("."):
        raise TaskDefinitionError(not_found)
    try:
        return import_module(name)
    except TaskDefinitionError as error:
        raise TaskDefinitionError(f"module '{name}'{_line(error)}: {error}") from error
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise TaskDefinitionError(not_found) from error
        raise TaskDefinitionError(f"module '{name}' imports '{error.name}', which is not installed here") from error
    except ValidationError as error:
        raise TaskDefinitionError(f"module '{name}'{_line(error)}: {error.title}: {describe(error)}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise TaskDefinitionError(f"module '{name}' fails on import{_line(error)}: {_in_one_line(error)}") from error


def _line(error: BaseException) -> str:
    """Where in the author's own code it went wrong: the last frame outside libraries."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_AUTHORS)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _in_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
