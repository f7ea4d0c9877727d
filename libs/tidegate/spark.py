"""What PySpark programs use: `import tidegate.spark`. May import: services, runtime."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from tidegate.contracts.naming import log_path
from tidegate.runtime.application import Application, load
from tidegate.runtime.history import has_version
from tidegate.runtime.spark.views import register_log, register_outputs


def register_views(spark: Any, file: str | Path | Application, version: int | None = None) -> list[str]:
    """The views of every operator of the file that has a log are registered in the session; gives their names.

    With a version the views show the logs as of it; a log that has no such version has no views then.
    """
    application = file if isinstance(file, Application) else load(Path(file))
    views: list[str] = []
    for name, config in application.operators.items():
        path = log_path(application.lake, name)
        if has_version(path, version):
            register_log(spark, name, path, version)
            views += [f"{name}_log", *register_outputs(spark, name, config)]
            views += import_module(f"services.{config.kind}.views").register(spark, name, config)
    return views
