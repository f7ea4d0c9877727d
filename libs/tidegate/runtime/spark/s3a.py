"""How Spark reads a lake in an object store; on S3 with jars and settings for the lake's bucket.

The settings are the bucket's own, so that a session keeps those that it has for others. They hold no keys: driver and
executors log in with what their machines have.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.contracts.errors import UserError
from tidegate.runtime.install.paths import jars
from tidegate.state.lake.s3_login import endpoint, is_plain_http

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from tidegate.state.lake.place import Place

_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_OF_THE_MACHINE = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_OF_A_PROFILE = "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider"


def jars_for(place: Place | None) -> list[Path]:
    """Return the jars that Spark needs to read the place: none unless it is on S3. Raise UserError without them."""
    if place is None or place.scheme != "s3":
        return []
    found = sorted(jars("s3a").glob("*.jar"))
    if not found:
        remedy = "run `tidegate setup --s3`"
        raise UserError("the jars with which Spark reads S3 are missing", value=jars("s3a"), remedy=remedy)
    return found


def let_read(spark: SparkSession, place: Place) -> None:
    """Let the session read the place: nothing is to be done for a folder.

    Raise UserError if the session lacks Hadoop's client of that store. Settings that it already has for an S3 bucket
    stay.
    """
    if place.is_local:
        return
    context = spark.sparkContext
    if place.scheme != "s3":
        _require_client(context, place)
        return
    conf, loader = context._jsc.hadoopConfiguration(), context._jvm.Thread.currentThread().getContextClassLoader()
    if loader.getResource(_FILE_SYSTEM.replace(".", "/") + ".class") is None:
        raise UserError(
            "the Spark session cannot read S3",
            value=place,
            remedy="add hadoop-aws of its Hadoop version to it (spark.jars.packages), or let Tidegate start it after "
            "`tidegate setup --s3`",
        )
    for name, value in settings(place).items():
        if conf.get(name) is None:
            conf.set(name, value)


def _require_client(context: SparkContext, place: Place) -> None:
    """Raise UserError if Spark has no client for the url's scheme: Tidegate brings one for S3 only."""
    from py4j.protocol import Py4JJavaError

    conf = context._jsc.hadoopConfiguration()
    try:
        context._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(place.scheme, conf)
    except Py4JJavaError:
        raise UserError(
            f"the Spark session cannot read {place.scheme}://",
            value=place,
            remedy="add Hadoop's client of that store to the session (for gs:// the GCS connector), or read the log "
            "with delta-rs; on Azure Spark reads the same table as abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/...",
        ) from None


def settings(place: Place) -> dict[str, str]:
    """Return Hadoop's settings for the bucket of a place on S3."""
    options, bucket = dict(place.options), place.url.partition("://")[2].partition("/")[0]
    profile = {"auth.profile.name": options.get("profile"), "auth.profile.file": options.get("secret_file")}
    server = endpoint(options)
    chosen = {
        "aws.credentials.provider": _OF_A_PROFILE if any(profile.values()) else _OF_THE_MACHINE,
        **profile,
        "endpoint": server,
        "endpoint.region": options.get("region"),
        "path.style.access": None if server is None else "true",
        "connection.ssl.enabled": "false" if is_plain_http(options) else None,
    }
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in chosen.items() if value is not None}
