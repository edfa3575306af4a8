"""Ingest: a day's orders for each day asked for, as CSV files. Generated here; a real task would fetch them."""

import csv
import random
from datetime import date, timedelta
from pathlib import Path

from pydantic import BaseModel, Field

from perago import RetryPolicy, TaskControls, TimeoutPolicy, WorkspaceSpec, forbid_glob, require_glob, task

PRODUCTS = {"tea": 4.5, "coffee": 7.2, "mug": 12.0, "kettle": 38.9}
COUNTRIES = ("DE", "FR", "IT", "JP", "US")


class Params(BaseModel):
    first_day: date
    days: int = Field(default=7, ge=1, le=366)
    rows_per_day: int = Field(default=1000, ge=1)
    seed: int = 7


class Result(BaseModel):
    file_count: int
    row_count: int


@task(
    name="orders.ingest",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="/orders",
        post=[require_glob("raw/*.csv"), forbid_glob("raw/*.tmp")],
    ),
    controls=TaskControls(
        retry=RetryPolicy(count=3, logic="EXPONENTIAL_BACKOFF", delay_seconds=5),
        timeout=TimeoutPolicy(response_seconds=300),
    ),
)
def ingest(workspace: Path, params: Params) -> Result:
    """Write one CSV file of orders for each day."""
    chance = random.Random(params.seed)  # noqa: S311 - made-up orders, the same ones every time
    raw = workspace / "raw"
    raw.mkdir(exist_ok=True)
    for offset in range(params.days):
        day = params.first_day + timedelta(days=offset)
        write_day(raw / f"{day.isoformat()}.csv", day, params.rows_per_day, chance)
    return Result(file_count=params.days, row_count=params.days * params.rows_per_day)


def write_day(file: Path, day: date, rows: int, chance: random.Random) -> None:
    with file.open("w", newline="") as opened:
        table = csv.writer(opened)
        table.writerow(("order_id", "day", "country", "product", "quantity", "amount"))
        for number in range(rows):
            product = chance.choice(tuple(PRODUCTS))
            quantity = chance.randint(1, 5)
            amount = round(PRODUCTS[product] * quantity, 2)
            table.writerow((f"{day:%Y%m%d}-{number:07}", day, chance.choice(COUNTRIES), product, quantity, amount))
