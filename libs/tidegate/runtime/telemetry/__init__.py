"""Telemetry of a running service: metrics, health and readiness over HTTP, log lines, and driver status."""
