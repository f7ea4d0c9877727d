"""The demo: a year of real departures through the services, on a real broker, checked against other code."""
