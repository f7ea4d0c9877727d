"""The arrays of one partition on a machine's disk: their header, the way back after a crash, the undo rows."""
