"""Read and write the Delta log of an operator: log entries, checkpoints, data files and the metadata of batches."""
