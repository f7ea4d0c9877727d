"""Tests over all kinds: conformance runner, replay of a log, simulation; and the face of the per-record driver."""
