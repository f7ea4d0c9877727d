"""Where Java and the jars are, and how the jars are fetched."""
