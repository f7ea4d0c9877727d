"""Protobuf values in the wire format of a schema registry: a message type becomes a program, run by one kernel."""
