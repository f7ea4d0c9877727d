"""The configuration of an operator on a streaming DataFrame.

The operator itself is described by its rules; this is the rest: its folders, its partitions, and how long output stays.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from tidegate.contracts.config.base import Config
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.option_types import Folder, Keep, Name
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import InvalidValue
from tidegate.runtime.configuration.lake_place import LakePlace
from tidegate.state.lake.place import Place


class StreamConfig(Config):
    """The configuration of an operator on a streaming DataFrame."""

    rules: OperatorRules
    """The operator's rules: a configuration without topics."""
    name: Name
    """Name of the operator: its log is the Delta table <lake>/<name>."""
    lake: LakePlace
    """Folder of the operator logs."""
    state: Folder
    """Folder of the local state on each machine; it can be deleted at any time and is then rebuilt from the log."""
    checkpoint: Folder
    """Folder of Spark's checkpoint: how far it has read."""
    partitions: Annotated[int, Field(ge=1)]
    """Number of partitions that keys are spread over. It cannot change once the log exists."""
    keep_output: Keep
    """How long emissions, late and rejected rows stay in the log."""

    @field_validator("rules")
    @classmethod
    def _without_topics(cls, rules: OperatorRules) -> OperatorRules:
        if isinstance(rules, OperatorConfig):
            alone = type(rules).__name__.replace("Config", "Rules")
            raise InvalidValue("a DataFrame is used in place of topics", f"pass the rules alone: {alone}")
        if rules.timestamp is not None:
            raise InvalidValue(
                "the column of the timestamp is named already, outside the rules", "remove `timestamp` from the rules"
            )
        if rules.reads():
            raise InvalidValue(
                "a table is lacking: these rules read that of another operator",
                "write tidegate.spark.stream(...).join(tidegate.spark.table(...), how=...).start(NAME, lake=...)",
            )
        return rules

    @field_validator("lake")
    @classmethod
    def _absolute_lake(cls, lake: Place) -> Place:
        return lake.within(Path.cwd())

    @field_validator("state", "checkpoint")
    @classmethod
    def _absolute(cls, folder: Path) -> Path:
        return folder.absolute()

    @property
    def log(self) -> Place:
        """Return the place of the operator's log."""
        return self.lake / self.name
