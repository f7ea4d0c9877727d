"""The results of a batch on windows: tables of what it did, and measures."""
