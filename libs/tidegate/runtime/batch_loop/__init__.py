"""The driver of one operator: claim it, then plan, run, commit and publish one micro-batch after the other.

`driver` claims, retries and answers requests; `claimed_operator` is what it works with while its claim holds. `claim`,
`earlier_runs` and `preflight` run before that. `planning`, `next_metadata` and `pace` decide about one batch, and
`retries` about failures. `requests`, `background_compaction` and `state_recovery` work between batches or in parallel
to them. `table_pin` and `table_stream_alignment` serve operators that read a table, and the table itself.
"""
