"""Ingest: the orders of some days as CSV files, one a day, as a shop's system would deliver them.

They are generated here; a real task would fetch them. A path workspace: the body writes plain files into a directory.
"""

import random
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

from pydantic import BaseModel, Field

from perago import RetryPolicy, TaskControls, TimeoutPolicy, WorkspaceSpec, forbid_glob, require_glob, task

HEADER = "order_id,customer,country,product,quantity,amount\n"
PRICES = {"tea": 4.5, "coffee": 7.2, "mug": 12.0, "kettle": 38.9}
COUNTRIES = {"DE": 5, "FR": 4, "IT": 3, "JP": 2, "US": 6}  # with how many orders come from there, relatively
CUSTOMERS = 20_000
WEEKDAYS = (9, 8, 8, 9, 11, 15, 13)  # Monday to Sunday, relatively


class Params(BaseModel):
    first_day: date
    days: int = Field(default=7, ge=1, le=366)
    rows: int = Field(default=1_000_000, ge=1, description="How many different orders there are.")
    seed: int = Field(default=1, description="The same seed makes the same orders.")
    broken: bool = Field(default=False, description="Deliver the last day with negative amounts.")


class Result(BaseModel):
    files: int
    orders: int
    lines: int


@task(
    name="orders.ingest",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="/orders",
        post=[require_glob("raw/*.csv"), forbid_glob("raw/*.tmp")],
    ),
    controls=TaskControls(
        retry=RetryPolicy(count=3, delay_seconds=1),
        timeout=TimeoutPolicy(policy="RETRY", response_seconds=60),
    ),
)
def ingest(workspace: Path, params: Params) -> Result:
    """Replace the raw files by one CSV file of orders for each day."""
    chance = random.Random(params.seed)  # noqa: S311 - made-up orders, the same ones every time
    raw = workspace / "raw"
    raw.mkdir(exist_ok=True)
    for old in raw.glob("*.csv"):  # the workspace begins as the input commit: what is not removed stays
        old.unlink()
    days = [params.first_day + timedelta(days=offset) for offset in range(params.days)]
    lines = 0
    for day, rows in zip(days, split(params.rows, days), strict=True):
        written = day_lines(day, rows, chance, negative=params.broken and day == days[-1])
        (raw / f"{day}.csv").write_text(HEADER + "".join(written))
        lines += len(written)
    return Result(files=len(days), orders=params.rows, lines=lines)


def split(rows: int, days: Sequence[date]) -> list[int]:
    """Shares of `rows` for each day, more of them at weekends."""
    weights = [WEEKDAYS[day.weekday()] for day in days]
    ends = [rows * sum(weights[: number + 1]) // sum(weights) for number in range(len(days))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def day_lines(day: date, rows: int, chance: random.Random, *, negative: bool) -> list[str]:
    """A day's orders as lines of CSV, with the flaws that real deliveries have."""
    baskets, weights = basket_texts(negative=negative)
    chosen = chance.choices(baskets, weights, k=rows)
    # One order in two hundred names no customer.
    customers = [f"C{number:05}" for number in range(CUSTOMERS)] + [""] * (CUSTOMERS // 200)
    buyers = chance.choices(customers, k=rows)
    lines = [
        f"{day}-{number:07},{buyer},{basket}\n"
        for number, (buyer, basket) in enumerate(zip(buyers, chosen, strict=True))
    ]
    return lines + chance.choices(lines, k=rows // 100)  # one line in a hundred is delivered twice


def basket_texts(*, negative: bool) -> tuple[list[str], list[float]]:
    """Every `country,product,quantity,amount` there can be, and how often; a few amounts are `EUR 9.00`."""
    texts: list[str] = []
    weights: list[float] = []
    for country, orders in COUNTRIES.items():
        for product, price in PRICES.items():
            for quantity in range(1, 6):
                amount = f"{-price * quantity if negative else price * quantity:.2f}"
                for text, often in ((amount, 0.97), (f"EUR {amount}", 0.03)):
                    texts.append(f"{country},{product},{quantity},{text}")
                    weights.append(orders / quantity * often)
    return texts, weights
