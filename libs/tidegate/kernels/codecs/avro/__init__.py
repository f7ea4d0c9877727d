"""Avro values in the wire format of a schema registry: a schema becomes a program, which one kernel runs per value."""
