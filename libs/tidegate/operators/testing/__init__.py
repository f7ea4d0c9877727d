"""What tests of one operator are made of: the per-record driver, laws, cases, strategies, functions to name."""
