"""Where arrays live, and blocks and slots in them."""
