"""Benchmarks of what a service uses: cores and memory."""
