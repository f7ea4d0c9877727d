"""What a running service tells: metrics, health and readiness over HTTP, and lines with fields."""
