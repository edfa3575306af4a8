import shutil
import subprocess
from pathlib import Path

import pytest

from perago.attempt.spreading import spread_below


def test_the_hint_may_be_given_again_and_changes_nothing_that_can_be_seen(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")

    spread_below(tmp_path)
    spread_below(tmp_path)

    (tmp_path / "made").mkdir()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["kept", "made"]


def test_a_directory_that_is_not_there_is_left_to_whoever_needs_it(tmp_path: Path) -> None:
    spread_below(tmp_path / "nowhere")

    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(shutil.which("lsattr") is None, reason="nothing here shows a directory's hints")
def test_the_hint_is_there_where_the_file_system_knows_it(tmp_path: Path) -> None:
    def hints() -> str:
        shown = subprocess.run(["lsattr", "-d", tmp_path], capture_output=True, text=True, check=False)
        return shown.stdout.partition(" ")[0]

    if "e" not in hints():
        pytest.skip("not ext4")
    assert "T" not in hints()

    spread_below(tmp_path)

    assert "T" in hints()
