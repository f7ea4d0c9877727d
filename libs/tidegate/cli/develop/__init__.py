"""Commands for development: a local broker, topics, records, recorded scenarios, benchmarks."""
