"""The storage of operator logs: a folder of a file system, or a prefix of an object store."""
