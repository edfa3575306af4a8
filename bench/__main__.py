"""`make bench`: side-by-side figures, printed and kept as bench/RESULTS.md; `python -m bench Spark` of one subject.

Ratios of one run are what counts: machines differ and are noisy, so nothing here is asserted.
"""

import platform
import sys
from datetime import UTC, datetime
from os import cpu_count
from pathlib import Path

from bench import engines, import_time, spark, transfers, workers
from bench.table import Row, as_markdown

RESULTS = Path(__file__).parent / "RESULTS.md"
_HEADING = "# Latest figures\n\nMedians, the spread in brackets.\n"
SUBJECTS = {
    "Importing": import_time.rows,
    "Transfers": transfers.rows,
    "Engines": engines.rows,
    "Workers": workers.rows,
    "Spark": spark.rows,
}


def main() -> None:
    kept = _kept()
    for subject in sys.argv[1:] or SUBJECTS:
        rows: list[Row] = SUBJECTS[subject]()
        kept[subject] = f"{_when_and_where()}\n\n{as_markdown(rows)}"
        print(f"## {subject}\n\n{kept[subject]}", end="\n\n", flush=True)
        parts = [f"## {name}\n\n{kept[name]}\n" for name in SUBJECTS if name in kept]
        RESULTS.write_text("\n".join([_HEADING, *parts]))


def _kept() -> dict[str, str]:
    """The latest figures of each subject: one that is measured alone leaves the others as they are."""
    _, *parts = RESULTS.read_text().split("\n## ") if RESULTS.exists() else [""]
    return {subject: told.strip() for subject, _, told in (part.partition("\n") for part in parts)}


def _when_and_where() -> str:
    machine = f"{cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return f"{datetime.now(UTC):%Y-%m-%d}, {machine}."


if __name__ == "__main__":
    main()
