"""What a driver does, and in which order: claim the operator, plan a batch, run it, commit it, publish it, begin again.

`driver` is the loop. `claim`, `beginning` and `preflight` come before it, `planning`, `metadata`, `results` and `pace`
decide about one batch, `retries` about what failed, and `requests`, `background_compaction` and `state_recovery` go on
beside it. `table_pin` and `alignment` are there for operators that read a table, and for the table.
"""
