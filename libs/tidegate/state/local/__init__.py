"""Keep the state arrays of a partition on local disk: memory-mapped files, header, undo rows and crash recovery."""
