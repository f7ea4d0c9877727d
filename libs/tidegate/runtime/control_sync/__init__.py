"""Copying metadata from the operator logs to the control database: each commit as it happens, missed ones later."""
