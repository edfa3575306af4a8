"""What must hold of a workspace's files before and after the body."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from perago.authoring.errors import (
    GuardrailViolation,
    PostGuardrailViolation,
    PreGuardrailViolation,
    TaskDefinitionError,
    TaskExecutionError,
)
from perago.authoring.paths import MARKER_NAME, checked_relative

Phase = Literal["pre", "post"]
_SHOWN = 3


class FileTree(Protocol):
    """The files of a workspace, wherever they are."""

    def kind(self, path: str) -> Literal["file", "directory", "symlink", "other"] | None: ...

    @property
    def files(self) -> Sequence[str]: ...


class Guardrail:
    """A rule on a workspace, shown in messages as the call that made it."""

    name: ClassVar[str]

    def __str__(self) -> str:
        shown: list[str] = []
        for rule in fields(self):  # pyright: ignore[reportArgumentType] - every guardrail is a dataclass
            value = getattr(self, rule.name)
            if rule.metadata.get("positional"):
                shown.append(repr(value))
            elif value != rule.default:
                shown.append(f"{rule.name}={value!r}")
        return f"{self.name}({', '.join(shown)})"

    @property
    def title(self) -> str:
        """How a violation names it."""
        return str(self)


#: What was found of a guardrail that needs more than the names of files, when it does not hold.
OnTable = Callable[[Guardrail], str | None]


class FileGuardrail(Guardrail, ABC):
    """A guardrail that needs only the names of files."""

    @abstractmethod
    def violation(self, tree: FileTree) -> str | None:
        """What was found, when the rule does not hold."""


@dataclass(frozen=True)
class RequireFile(FileGuardrail):
    name: ClassVar[str] = "require_file"
    path: str = field(metadata={"positional": True})

    def violation(self, tree: FileTree) -> str | None:
        return _unless("file", tree.kind(self.path))


@dataclass(frozen=True)
class RequireDir(FileGuardrail):
    name: ClassVar[str] = "require_dir"
    path: str = field(metadata={"positional": True})

    def violation(self, tree: FileTree) -> str | None:
        return _unless("directory", tree.kind(self.path))


@dataclass(frozen=True)
class RequireGlob(FileGuardrail):
    name: ClassVar[str] = "require_glob"
    pattern: str = field(metadata={"positional": True})
    min_count: int = 1
    max_count: int | None = None

    def violation(self, tree: FileTree) -> str | None:
        found = matching(self.pattern, tree.files)
        if len(found) < self.min_count:
            return f"{_counted(found)}, at least {self.min_count} needed"
        if self.max_count is not None and len(found) > self.max_count:
            return f"{_counted(found)}, at most {self.max_count} allowed"
        return None


@dataclass(frozen=True)
class ForbidGlob(FileGuardrail):
    name: ClassVar[str] = "forbid_glob"
    pattern: str = field(metadata={"positional": True})

    def violation(self, tree: FileTree) -> str | None:
        found = matching(self.pattern, tree.files)
        return f"{_counted(found)}, none allowed" if found else None


def require_file(path: str) -> Guardrail:
    """The workspace must hold a file at `path`."""
    return RequireFile(declared_path(path, "require_file path"))


def require_dir(path: str) -> Guardrail:
    """The workspace must hold a directory at `path`."""
    return RequireDir(declared_path(path, "require_dir path"))


def require_glob(pattern: str, min_count: int = 1, max_count: int | None = None) -> Guardrail:
    """Between `min_count` and `max_count` files must match; `*` stays in a directory, `**` crosses them."""
    pattern = declared_path(pattern, "require_glob pattern")
    call = f"require_glob({pattern!r})"
    refuse_bad_count(call, "min_count", min_count)
    if max_count is not None:
        refuse_bad_count(call, "max_count", max_count, "min_count", min_count)
    return RequireGlob(pattern, min_count, max_count)


def forbid_glob(pattern: str) -> Guardrail:
    """No file may match `pattern`."""
    return ForbidGlob(declared_path(pattern, "forbid_glob pattern"))


def declared_path(path: str, what: str) -> str:
    try:
        return checked_relative(path, what)
    except ValueError as error:
        raise TaskDefinitionError(str(error)) from None


def refuse_bad_count(call: str, name: str, count: object, least: str = "", at_least: int = 0) -> None:
    """Refuse what is no count, or one below the `least` that was given with it."""
    if type(count) is not int or count < 0:
        raise TaskDefinitionError(f"{call}: {name} must be a whole number, 0 or more, got {count!r}")
    if count < at_least:
        raise TaskDefinitionError(f"{call}: {name} ({count}) must not be less than {least} ({at_least})")


def check_guardrails(workspace: Path, guardrails: Sequence[Guardrail], phase: Phase) -> None:
    """Check file guardrails on a directory in order; the first that does not hold is raised."""
    check_files(Directory(workspace), guardrails, phase)


def check_files(tree: FileTree, guardrails: Sequence[Guardrail], phase: Phase, on_table: OnTable | None = None) -> None:
    """Check guardrails on any tree of files in order; rules on tables are asked of `on_table`."""
    for guardrail in guardrails:
        if isinstance(guardrail, FileGuardrail):
            found = guardrail.violation(tree)
        elif on_table is None:
            # Fail closed: a rule on a table's contents is never passed by looking at file names.
            raise TaskExecutionError(f"{guardrail} is checked on Spark, not on the files of a directory")
        else:
            found = on_table(guardrail)
        if found is not None:
            raise violated(guardrail, phase, found)


def violated(guardrail: Guardrail, phase: Phase, found: str) -> GuardrailViolation:
    violation = PreGuardrailViolation if phase == "pre" else PostGuardrailViolation
    return violation(f"{phase} guardrail {guardrail.title} failed: {found}")


class Directory:
    """The files of a local directory, never followed through a symbolic link."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def kind(self, path: str) -> Literal["file", "directory", "symlink", "other"] | None:
        at = self._root
        for part in path.split("/"):
            if at != self._root and at.is_symlink():
                return None
            at = at / part
        if at.is_symlink():
            return "symlink"
        if at.is_file():
            return "file"
        if at.is_dir():
            return "directory"
        return "other" if at.exists() else None

    @property
    def files(self) -> Sequence[str]:
        return self._walked

    @cached_property
    def _walked(self) -> Sequence[str]:
        return sorted(_walk(self._root))


def matching(pattern: str, files: Sequence[str]) -> list[str]:
    """The files that match: `*`, `?` and `[…]` within a name, `**` across directories."""
    wanted = tuple(pattern.split("/"))
    return [file for file in files if _matches(wanted, tuple(file.split("/")))]


def _matches(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    # reachable[i]: the pattern so far can consume exactly the first i parts. Linear in both, however many `**`.
    reachable = [True] + [False] * len(parts)
    for position, segment in enumerate(pattern):
        if segment == "**":
            last = position == len(pattern) - 1
            first = reachable.index(True) if True in reachable else len(parts) + 1
            # A closing `**` stands for at least a file's name, as in a shell.
            reachable = [index >= first + last for index in range(len(parts) + 1)]
        else:
            reachable = [False] + [reachable[index] and fnmatchcase(part, segment) for index, part in enumerate(parts)]
    return reachable[-1]


def _walk(root: Path) -> Iterator[str]:
    waiting = [(str(root), "")]
    while waiting:
        directory, under = waiting.pop()
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name == MARKER_NAME:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, f"{under}{entry.name}/"))
                elif entry.is_file(follow_symlinks=False):
                    yield f"{under}{entry.name}"


def _unless(wanted: str, found: str | None) -> str | None:
    if found == wanted:
        return None
    if found is None:
        return f"no such {wanted}"
    return f"it is a {'special file' if found == 'other' else found}, not a {wanted}"


def _counted(found: Sequence[str]) -> str:
    listed = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    noun = "file" if len(found) == 1 else "files"
    return f"found {len(found)} {noun}" + (f" ({listed})" if found else "")
