"""Commands for what went wrong: find it, accept it, send it again."""
