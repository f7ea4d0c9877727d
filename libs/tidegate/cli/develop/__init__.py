"""Commands for the desk of a developer: a broker, topics, records, recorded scenarios, benchmarks."""
