from pathlib import Path

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
