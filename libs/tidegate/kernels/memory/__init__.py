"""Memory for arrays, and the allocation of blocks and slots in them."""
