"""The demo: a year of real departures run through the services on a real broker and checked with independent code."""
