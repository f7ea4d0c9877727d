"""Parts of configurations that several kinds share: bounds of buffers, and functions of the user."""
