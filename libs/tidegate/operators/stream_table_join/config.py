"""The stream-table join's configuration (KIP-923). May import: the standard library, pydantic, contracts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from tidegate.contracts.config import Duration, OperatorConfig, OperatorRules, TableFacts, TableRead
from tidegate.contracts.event_time import format_duration_ms


class StreamTableJoinRules(OperatorRules):
    """Joins each record of a stream with the version of a table that was valid when the record happened."""

    live: ClassVar[frozenset[str]] = frozenset({"join", "grace", "wait_for_table", "joiner"})

    kind: Literal["stream_table_join"] = "stream_table_join"
    """Kind of operator."""
    table: str
    """The operator of kind table_history whose table is read."""
    join: Literal["inner", "left"]
    """`inner`: records that meet no version vanish. `left`: they are emitted alone."""
    grace: Duration | None = None
    """How long a record waits, in stream time, for the table's version to be there; omitted or 0: not at all."""
    wait_for_table: Duration | None = Field(default=None, validate_default=True)
    """Records also wait until the table's stream time has reached theirs, that long at most by the clock."""
    joiner: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None
    """`module:function` that makes the values; omitted: `{"stream": ..., "table": ...}`."""

    @field_validator("wait_for_table")
    @classmethod
    def _only_a_buffer_waits(cls, wait: int | None, info: ValidationInfo) -> int | None:
        if wait is not None and "grace" in info.data and not info.data["grace"]:
            raise ValueError("without a grace no record is held, so none can wait; add a grace such as grace: 5m")
        return wait

    def reads(self) -> TableRead:
        """The table that it reads."""
        return TableRead(self.table, self.wait_for_table)


class StreamTableJoinConfig(StreamTableJoinRules, OperatorConfig):
    """A stream-table join between topics."""

    def refuses(self, table: TableFacts) -> str | None:
        """Why it cannot read such a table: "cause; remedy". None: it can.

        KIP-923: a grace needs a history, kept for longer than it; Kafka Streams takes equal ones as well.
        """
        if self.grace is None:
            return None
        grace = format_duration_ms(self.grace)
        if table.history_retention is None:
            return (
                f"grace {grace} with a table of latest values, which has no earlier versions; "
                "remove grace, or give the table a history_retention greater than it"
            )
        if table.history_retention <= self.grace:
            retention = format_duration_ms(table.history_retention)
            return (
                f"the table's history_retention {retention} is not greater than grace {grace}, so that versions would "
                "be gone before they are looked up; raise the table's history_retention or lower grace"
            )
        return None

    def functions(self) -> tuple[str, ...]:
        """The joiner, if there is one."""
        return () if self.joiner is None else (self.joiner,)
