"""Read and write the Delta log of an operator: entries, checkpoints, data files, metadata of batches."""
