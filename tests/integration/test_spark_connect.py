from pyspark.sql.connect.session import SparkSession


def test_the_stack_has_a_spark_connect_server_on_the_bundled_java(spark_remote: str) -> None:
    spark = SparkSession.builder.remote(spark_remote).create()

    assert spark.range(1000).selectExpr("sum(id) AS total").collect()[0].total == 499500

    spark.stop()
