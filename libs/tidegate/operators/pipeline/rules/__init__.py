"""What a configuration says of a pipeline's steps, and how they are read from it."""
