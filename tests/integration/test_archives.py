"""Class archives: a start that maps what an earlier one loaded."""

import subprocess
from pathlib import Path

import pytest

from perago.devstack.archives import make_archives, with_archive
from perago.devstack.cache import Cache
from perago.devstack.progress import Reporter
from perago.devstack.provision import conductor_home, s3a_jars
from perago.devstack.services import Launch, conductor_launch, spark_launch
from tests.conftest import Servers


@pytest.mark.parametrize("server", ["conductor", "spark"])
def test_a_provisioned_server_starts_with_an_archive_that_its_java_takes(
    servers: Servers, server: str, tmp_path: Path
) -> None:
    cache = Cache.of_user(Reporter())
    make_archives(cache, conductor_home(cache), s3a_jars(cache))
    plain = (
        conductor_launch(conductor_home(cache), tmp_path, 1)
        if server == "conductor"
        else spark_launch(s3a_jars(cache), tmp_path, 1)
    )

    java, option, *rest = with_archive(cache, plain).command

    classes = rest[rest.index("-cp") + 1]
    assert rest == [*plain.command[1:]]
    # With `-Xshare:on` Java ends with an error when the archive does not fit.
    fits = subprocess.run([java, "-Xshare:on", option, "-cp", classes, "-version"], capture_output=True, check=False)
    assert fits.returncode == 0, fits.stdout + fits.stderr


def test_without_an_archive_a_server_starts_as_it_is(tmp_path: Path) -> None:
    launch = Launch(["java", "-cp", "some.jar", "Main"])

    assert with_archive(Cache(tmp_path, Reporter()), launch) == launch


def test_archives_that_cannot_be_made_are_told_and_stop_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").write_text("no folder")

    make_archives(Cache(tmp_path / "cache", Reporter()), tmp_path, tmp_path)

    assert "servers will start more slowly, for their classes could not be kept: " in capsys.readouterr().err
