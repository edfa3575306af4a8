"""A Spark server of one's own, without a worker around it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from perago.devstack.embedded import EmbeddedSpark
from perago.devstack.errors import DevStackError
from perago.devstack.progress import Reporter
from tests.e2e.worker import eventually


def test_a_start_under_way_is_given_up_when_its_owner_stops(tmp_path: Path) -> None:
    server = EmbeddedSpark(tmp_path / "spark.log", tmp_path / "scratch", "1g", Reporter())
    with ThreadPoolExecutor(1) as attempt:
        asked = attempt.submit(server.url)
        pid = eventually(lambda: server.pid, "a process")
        server.stop()

        with pytest.raises(DevStackError, match="stopped before it was ready"):
            asked.result(30)
    assert not psutil.pid_exists(pid)
    assert not (tmp_path / "scratch").exists()
