"""Does a test fail when a fence is taken away? `python -m tests.mutations` tries it, one comparison after the other.

Each mutation is a replacement in a copy of the sources that comes first on the import path; the checkout is never
touched. The tests it must fail need no servers. It takes a few minutes, so it is no part of a plain `pytest`.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).parents[1]
TESTS = [
    f"tests/unit/test_{name}.py" for name in ("attempt_fence", "publish_fence", "fence_positions", "tree_and_plan")
]
AT_ONCE = 2
SECONDS = 120
_TESTS_FAILED = 1


@dataclass(frozen=True)
class Mutation:
    """What is lost when the one `before` in a file below `src/perago`, or one of several, becomes `after`."""

    file: str
    lost: str
    before: str
    after: str
    which: int = 0
    among: int = 1

    def mutated(self, text: str) -> str:
        parts = text.split(self.before)
        found = len(parts) - 1
        if found != self.among:
            raise SystemExit(f"{self.file} has {self.before!r} {found}, not {self.among} times: update the list")
        kept = self.before.join(parts[: self.which + 1]), self.before.join(parts[self.which + 1 :])
        return self.after.join(kept)


def _without(file: str, lost: str, comparison: str, instead: str = "if False:") -> Mutation:
    return Mutation(file, lost, comparison, instead)


_ATTEMPT = "protocol/attempt.py"
_IDENTITY = '_IDENTITY = ("workflow_instance_id", "task_id", "retry_count")'
_WHERE_GIVEN = '_WHERE_GIVEN = ("scheduled_time", "worker_id", "poll_count")'
_DECISION = "protocol/publication.py"
_PUBLICATION = "attempt/publication.py"
_LIFECYCLE = "attempt/lifecycle.py"
_IS_OURS = "head.id == staged.id or (head.first_parent == input_ref and head.tree == staged.tree)"
_MAY_RESET = "if isinstance(decision, Relocate | Replace):"
_MAY_DIFFER = "now.signature != before.signature or now.signature.ctime_ns >= sealed_ns"

MUTATIONS = [
    # The attempt fence
    _without(_ATTEMPT, "status", 'if fresh.status != "IN_PROGRESS":'),
    Mutation(_ATTEMPT, "workflow_instance_id", _IDENTITY, '_IDENTITY = ("task_id", "retry_count")'),
    Mutation(_ATTEMPT, "task_id", _IDENTITY, '_IDENTITY = ("workflow_instance_id", "retry_count")'),
    Mutation(_ATTEMPT, "retry_count", _IDENTITY, '_IDENTITY = ("workflow_instance_id", "task_id")'),
    Mutation(_ATTEMPT, "scheduled_time", _WHERE_GIVEN, '_WHERE_GIVEN = ("worker_id", "poll_count")'),
    Mutation(_ATTEMPT, "worker_id", _WHERE_GIVEN, '_WHERE_GIVEN = ("scheduled_time", "poll_count")'),
    Mutation(_ATTEMPT, "poll_count", _WHERE_GIVEN, '_WHERE_GIVEN = ("scheduled_time", "worker_id")'),
    Mutation(_LIFECYCLE, "first fence", "publication.fence()", "pass", which=0, among=2),
    Mutation(_LIFECYCLE, "second fence", "publication.fence()", "pass", which=1, among=2),
    Mutation(
        _PUBLICATION,
        "failing closed when Conductor cannot be asked",
        "        except Exception as error:\n            raise StaleAttemptError(",
        "        except Exception as error:\n            return\n            raise StaleAttemptError(",
    ),
    # The publish fence
    _without(_DECISION, "head == input", "if head.id == input_ref:", "if True:"),
    _without(_DECISION, "parent(head) == input", "if head.first_parent == input_ref:", "if True:"),
    _without(_DECISION, "a run by hand", "if by_hand:"),
    _without(_DECISION, "the merge's parent", "if published.first_parent != input_ref:"),
    Mutation(_DECISION, "the staged commit itself", _IS_OURS, _IS_OURS.replace("head.id == staged.id or ", "")),
    Mutation(_DECISION, "ours: its parent", _IS_OURS, _IS_OURS.replace("head.first_parent == input_ref and ", "")),
    Mutation(_DECISION, "ours: its tree", _IS_OURS, _IS_OURS.replace(" and head.tree == staged.tree", "")),
    _without(_PUBLICATION, "refusing", "if isinstance(decision, Refuse):"),
    Mutation(_PUBLICATION, "fence before a reset: no-op", _MAY_RESET, "if isinstance(decision, Replace):"),
    Mutation(_PUBLICATION, "fence before a reset: changed", _MAY_RESET, "if isinstance(decision, Relocate):"),
    Mutation(_PUBLICATION, "fence before a reset", "            self.fence()\n", "            pass\n"),
    _without(_PUBLICATION, "relocating", "case Relocate():", "case _ if False:"),
    _without(_PUBLICATION, "replacing", "case Replace():", "case _ if False:"),
    Mutation(_PUBLICATION, "knowing a run by hand", "by_hand=self.conductor is None", "by_hand=False"),
    Mutation(_PUBLICATION, "a run by hand's first look", "            self._decide(changed=True)  #", "            #"),
    Mutation(_PUBLICATION, "looking at the merge", "assert_published_onto(self.target.ref, commit)", "pass"),
    _without(_PUBLICATION, "an unanswered merge", "if not is_this_publication(head, self.target.ref, made):"),
    _without(_PUBLICATION, "an unanswered reset", "if head.id != ref:"),
    _without(_PUBLICATION, "an unanswered commit", "if head.first_parent != self.target.ref:"),
    _without(
        _PUBLICATION,
        "an unanswered branch",
        "if not self.lake.branch_exists(self.target.repository, self.staging_branch):",
    ),
    Mutation(_PUBLICATION, "leaving a foreign branch alone", "        except LakeConflict:\n            raise\n", ""),
    _without(_LIFECYCLE, "a whole commit id", "if found.id != target.ref:"),
    _without(_LIFECYCLE, "read_only", "if place.spec.read_only:"),
    # What changed
    Mutation(
        "data/plan.py", "signature", _MAY_DIFFER, _MAY_DIFFER.replace("now.signature != before.signature or ", "")
    ),
    Mutation(
        "data/plan.py", "sealed_ns", _MAY_DIFFER, _MAY_DIFFER.replace(" or now.signature.ctime_ns >= sealed_ns", "")
    ),
    _without(
        "data/manifest.py", "the manifest's digest", 'if file_digest(lines, "sha256").hexdigest() != self.digest:'
    ),
    _without("data/manifest.py", "the manifest's digest, read", "if seen.hexdigest() != self.digest:"),
    _without("data/transfer.py", "a file's digest", "return seen.hexdigest() != entry.digest", "return False"),
    _without("data/transfer.py", "the size of a download", "if received != wanted.size:"),
    _without("data/transfer.py", "as seen before an upload", " != file.signature:", " is None:"),
    _without("data/transfer.py", "as seen after an upload", " == file.signature", " is not None"),
    _without("data/tree.py", "the marker, going up", "if entry.name == MARKER_NAME.encode():"),
    _without("protocol/paths.py", "the marker, coming down", "if MARKER_NAME in parts:"),
    _without("protocol/paths.py", "the prefix's slash", 'return f"{prefix}/" if prefix else ""', "return prefix"),
]


def tested(mutation: Mutation | None) -> str | None:
    """The first test that fails, if any, on the sources with a mutation."""
    with TemporaryDirectory() as made:
        package = Path(made) / "perago"
        shutil.copytree(ROOT / "src" / "perago", package, ignore=shutil.ignore_patterns("__pycache__"))
        if mutation is not None:
            source = package / mutation.file
            source.write_text(mutation.mutated(source.read_text()))
        environment = {**os.environ, "PYTHONPATH": made, "HYPOTHESIS_STORAGE_DIRECTORY": f"{made}/hypothesis"}
        if mutation is None:
            imported = _run(["-c", "import perago; print(perago.__file__)"], environment).stdout
            assert f"{package}/" in imported, "the copy of the sources is not what the tests import"
        run = _run(["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--noconftest", *TESTS], environment)
    if run.returncode not in (0, _TESTS_FAILED):
        raise SystemExit(f"the tests could not run ({mutation}):\n{run.stdout}{run.stderr}")
    failed = re.search(r"^(?:FAILED|ERROR) \S+?::(.+?)( - .*)?$", run.stdout, re.MULTILINE)
    if run.returncode and not failed:
        raise SystemExit(f"no test is named as failed ({mutation}):\n{run.stdout}{run.stderr}")
    return failed.group(1) if failed else None


def _run(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def check() -> None:
    """A text that is no longer there would make a mutation of nothing."""
    for mutation in MUTATIONS:
        mutation.mutated((ROOT / "src" / "perago" / mutation.file).read_text())


def main() -> int:
    check()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        untouched, *killers = pool.map(tested, [None, *MUTATIONS])
    console = Console(width=160)
    if untouched is not None:
        console.print(f"The sources as they are fail {untouched}: nothing can be told.")
        return 2
    table = Table("file", "without", "killed by")
    for mutation, killer in zip(MUTATIONS, killers, strict=True):
        table.add_row(mutation.file, mutation.lost, escape(killer or "SURVIVED"), style=None if killer else "bold red")
    console.print(table)
    survived = killers.count(None)
    console.print(f"{len(MUTATIONS) - survived} of {len(MUTATIONS)} killed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
