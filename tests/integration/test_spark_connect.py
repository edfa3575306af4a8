from pathlib import Path

from pyspark.sql.connect.session import SparkSession

from perago.devstack.progress import Reporter
from perago.devstack.stack import DevStack, StackOptions
from perago.devstack.state import DataFolder
from tests.conftest import Servers


def test_the_stack_starts_a_spark_connect_server_on_the_bundled_java(servers: Servers, tmp_path: Path) -> None:
    stack = DevStack(DataFolder(tmp_path / "dev"), Reporter())
    try:
        stack.up(StackOptions(spark=True, conductor_url=servers.environment["CONDUCTOR_SERVER_URL"]))
        spark = SparkSession.builder.remote(stack.environment()["SPARK_REMOTE"]).create()

        assert spark.range(1000).selectExpr("sum(id) AS total").collect()[0].total == 499500

        spark.stop()
    finally:
        stack.down()
