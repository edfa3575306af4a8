"""`make bench`: side-by-side figures of one run, printed and kept as bench/RESULTS.md.

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
SUBJECTS = {
    "Importing": import_time.rows,
    "Transfers": transfers.rows,
    "Engines": engines.rows,
    "Workers": workers.rows,
    "Spark": spark.rows,
}


def main() -> None:
    chosen = sys.argv[1:] or list(SUBJECTS)
    parts: list[str] = []
    for subject in chosen:
        rows: list[Row] = SUBJECTS[subject]()
        parts.append(f"## {subject}\n\n{as_markdown(rows)}")
        print(parts[-1], end="\n\n")
    if chosen == list(SUBJECTS):
        machine = f"{cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
        heading = f"# Latest figures\n\n{datetime.now(UTC):%Y-%m-%d}, {machine}. Medians, the spread in brackets.\n\n"
        RESULTS.write_text(heading + "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
