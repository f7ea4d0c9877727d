"""Every rule of the commit protocol by chapter, and those of operators whose page names them."""

from tests.rules.inventory import (
    batch,
    commit,
    deduplicate,
    drivers,
    fence,
    kafka,
    keys,
    local_state,
    mark,
    start,
    stream_stream_join,
    tables,
    times,
    transactions,
    upkeep,
    workers,
)

RULES = (
    *commit.RULES,
    *start.RULES,
    *batch.RULES,
    *times.RULES,
    *fence.RULES,
    *drivers.RULES,
    *mark.RULES,
    *transactions.RULES,
    *local_state.RULES,
    *workers.RULES,
    *upkeep.RULES,
    *kafka.RULES,
    *tables.RULES,
    *keys.RULES,
    *deduplicate.RULES,
    *stream_stream_join.RULES,
)
