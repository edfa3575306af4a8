"""The embedded Spark server while it is not there yet."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perago.devstack import embedded
from perago.devstack.embedded import EmbeddedSpark
from perago.devstack.errors import DevStackError
from perago.devstack.progress import Reporter
from perago.devstack.services import Launch


def test_a_stop_waits_for_no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloading, arrived = threading.Event(), threading.Event()

    def download(_: Any) -> Path:
        downloading.set()
        arrived.wait(60)
        return tmp_path

    def launch(*_: Any) -> Launch:
        return Launch(["true"])

    started: list[tuple[Any, ...]] = []

    def start(*given: Any) -> None:
        started.append(given)

    monkeypatch.setattr(embedded, "s3a_jars", download)
    monkeypatch.setattr(embedded, "spark_launch", launch)
    monkeypatch.setattr(embedded, "with_archive", launch)
    monkeypatch.setattr(embedded, "start_child", start)
    spark = EmbeddedSpark(tmp_path / "spark.log", tmp_path / "scratch", "1g", Reporter())
    with ThreadPoolExecutor(1) as attempt:
        asked = attempt.submit(spark.url)
        assert downloading.wait(30)

        spark.stop()

        with pytest.raises(DevStackError, match="stopped before it was ready"):
            asked.result(30)
    arrived.set()
    for thread in threading.enumerate():
        if thread.name == "perago-spark":
            thread.join(30)
    assert not started  # nobody would stop it
