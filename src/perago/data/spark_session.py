"""Sessions of a Spark Connect server: one an attempt, with lakeFS's settings, ended whatever happens."""

import os
import re
import sys
import time
import uuid
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import structlog
from pydantic import SecretStr

from perago.addresses import masked
from perago.authoring.errors import TaskExecutionError
from perago.extras import extra

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyspark.sql.connect.session import SparkSession

_log = structlog.get_logger("perago.spark")

LakeAddress = tuple[str, str, SecretStr]
# A server that is gone is told within seconds; pyspark alone would go on for ten minutes.
_TRIES = 4
_LONGEST_PAUSE_MS = 1500

_SETTINGS = {
    "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "fs.s3a.path.style.access": "true",
    "fs.s3a.endpoint.region": "us-east-1",
    # The staging branch is the job's atomic commit: files are moved to their place once, by the task that made them.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.cleanup-failures.ignored": "true",
    # Nobody else writes to an attempt's branch, so nothing need be asked before it is written.
    "fs.s3a.performance.flags": "*",
    "fs.s3a.change.detection.mode": "none",
    "fs.s3a.fast.upload.buffer": "bytebuffer",
    # Else each file waits for a leave to be sent: an eighth of a write.
    "fs.s3a.connection.expect.continue": "false",
}


def session_id_of(execution_id: str) -> str:
    """The session of an execution has an id that others can tell too: whoever outlives it can end it."""
    return str(uuid.UUID(execution_id))


class AttemptSession:
    """The one session of an execution, opened when something first needs it; its operations end with it.

    `remote` is asked at that moment: it may have to start a server.
    """

    def __init__(self, remote: "Callable[[], str]", execution_id: str, lakefs: LakeAddress | None) -> None:
        self._remote = remote
        self._execution_id = execution_id
        self._lakefs = lakefs
        self._spark: SparkSession | None = None

    def __call__(self) -> "SparkSession":
        if self._spark is None:
            self._spark = _opened(self._remote(), session_id_of(self._execution_id))
            self._spark.addTag(f"perago-{self._execution_id}")
            for name, value in {**_SETTINGS, **_reaching(self._lakefs)}.items():
                self._spark.conf.set(name, value)
        return self._spark

    def close(self) -> None:
        if self._spark is not None:
            _close(self._spark)
            self._spark = None


@contextmanager
def attempt_session(remote: str, execution_id: str, lakefs: LakeAddress | None) -> "Generator[SparkSession]":
    """The session of an execution, for a block."""
    session = AttemptSession(lambda: remote, execution_id, lakefs)
    try:
        yield session()
    finally:
        session.close()


def end_session(remote: str, execution_id: str) -> None:
    """End the session of an execution that can no longer do it itself; what runs in it is interrupted."""
    _close(_opened(remote, session_id_of(execution_id)))


def carry_code_of(body: "Callable[..., Any]") -> None:
    """Send the functions of a body's package along with what it hands to Spark: workers need not have its files."""
    package = sys.modules.get(body.__module__.partition(".")[0])
    if package is not None and package.__name__ != "__main__":  # that is sent along anyway
        with extra("spark", "Spark"):
            from pyspark import cloudpickle
        cast("Any", cloudpickle).register_pickle_by_value(package)


def stragglers(spark: "SparkSession") -> int:
    """Interrupt what still runs in a session; gives how many operations there were."""
    return len(spark.interruptAll())


def import_client() -> None:
    with extra("spark", "Spark"):
        import pyspark.sql.connect.session  # noqa: F401  # pyright: ignore[reportUnusedImport]


def _opened(remote: str, session_id: str) -> "SparkSession":
    with extra("spark", "Spark"):
        from pyspark.errors import PySparkException
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession
    # What `pyspark.sql.functions` looks at: its functions make columns of a Connect session.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # pyspark says it besides raising it
    spark: SparkSession | None = None
    try:
        spark = SparkSession.builder.remote(_with_session(remote, session_id)).create()
        patience = DefaultPolicy(max_retries=_TRIES, max_backoff=_LONGEST_PAUSE_MS)
        cast("Any", spark).client.set_retry_policies([patience])
        spark.conf.get("spark.app.name", "")
    except PySparkException as error:
        if spark is not None:
            _forget(spark)
        raise TaskExecutionError(
            f"the Spark server at {masked(remote)} cannot be used ({_in_a_line(error)}): see whether it runs, and check"
            " SPARK_REMOTE where it is set"
        ) from error
    return spark


def _close(spark: "SparkSession") -> None:
    started = time.monotonic()
    try:
        spark.interruptAll()
    except Exception as error:
        # Its server ends it by itself, sooner or later.
        _log.warning("Spark session not closed", error=_in_a_line(error), seconds=time.monotonic() - started)
        _forget(spark)
    else:
        spark.stop()


def _forget(spark: "SparkSession") -> None:
    """Stop a session whose server does not answer; left, the next attempt's functions would ask it."""
    cast("Any", spark).release_session_on_close = False  # it would only be tried again, for as long
    spark.stop()


def _reaching(lakefs: LakeAddress | None) -> dict[str, str]:
    if lakefs is None:
        return {}
    endpoint, key, secret = lakefs
    return {
        "fs.s3a.endpoint": endpoint.rstrip("/").removesuffix("/api/v1"),
        "fs.s3a.connection.ssl.enabled": str(endpoint.startswith("https")).lower(),
        "fs.s3a.access.key": key,
        "fs.s3a.secret.key": secret.get_secret_value(),
    }


def _with_session(remote: str, session_id: str) -> str:
    place, _, parameters = remote.rstrip(";").partition("/;")
    given = f"{parameters};" if parameters else ""
    return f"{place.rstrip('/')}/;{given}session_id={session_id}"


def _main() -> None:
    """`python -m perago.data.spark_session EXECUTION_ID`, the address on stdin: end the session of an execution."""
    end_session(sys.stdin.read(), sys.argv[1])


def _in_a_line(error: BaseException) -> str:
    """What went wrong: its first line, or what gRPC tells of a call without an answer within a block."""
    told = str(error).strip()
    details = re.search(r'^\s*details = "(.*)"$', told, re.MULTILINE)
    return details[1] if details else (told.splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    _main()
