import multiprocessing
from pathlib import Path

import pytest

from perago.devstack.cache import Cache, is_intact
from perago.devstack.errors import DevStackError
from perago.devstack.progress import Reporter


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", Reporter())


def make(folder: Path) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "server").write_text("server")


def must_not_run(folder: Path) -> None:
    raise AssertionError("made a second time")


def test_an_entry_is_made_once_and_then_reused(cache: Cache) -> None:
    entry = cache.provide("server-1", make, 0)

    assert (entry / "bin" / "server").read_text() == "server"
    assert cache.provide("server-1", must_not_run, 0) == entry


@pytest.mark.parametrize("damage", ["truncated", "missing file", "missing manifest"])
def test_a_broken_entry_is_noticed_and_made_anew(cache: Cache, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    entry = cache.provide("server-1", make, 0)
    if damage == "truncated":
        (entry / "bin" / "server").write_text("ser")
    elif damage == "missing file":
        (entry / "bin" / "server").unlink()
    else:
        (entry / "perago-manifest.json").unlink()

    assert not is_intact(entry)
    cache.provide("server-1", make, 0)

    assert is_intact(entry)
    assert f"cache entry {entry} is broken: making it anew" in capsys.readouterr().err


def test_an_interrupted_make_leaves_no_entry_and_its_scratch_is_found_again(cache: Cache) -> None:
    def interrupted(folder: Path) -> None:
        (cache.scratch("server-1") / "downloaded").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.provide("server-1", interrupted, 0)
    assert not (cache.root / "server-1").exists()
    assert (cache.scratch("server-1") / "downloaded").read_text() == "half"

    assert is_intact(cache.provide("server-1", make, 0))
    assert not (cache.root / "scratch" / "server-1").exists()


def test_too_little_disk_is_told_before_anything_is_made(cache: Cache) -> None:
    with pytest.raises(DevStackError, match=r"server-1 needs 1000000000.0 GB below .* are free: .*PERAGO_CACHE_DIR"):
        cache.provide("server-1", must_not_run, 10**18)


def test_a_cache_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(DevStackError, match=r"cache folder .*file/cache cannot be used .*PERAGO_CACHE_DIR"):
        Cache(tmp_path / "file" / "cache", Reporter()).provide("server-1", make, 0)


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    makers = [spawn.Process(target=_provide_counted, args=(tmp_path,)) for _ in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)

    assert [maker.exitcode for maker in makers] == [0, 0]
    assert (tmp_path / "made").read_text() == "x"


def _provide_counted(folder: Path) -> None:
    def counted(entry: Path) -> None:
        with (folder / "made").open("a") as made:
            made.write("x")
        make(entry)

    Cache(folder / "cache", Reporter()).provide("server-1", counted, 0)
