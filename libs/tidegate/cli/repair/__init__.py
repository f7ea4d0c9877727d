"""Commands for repair: diagnose problems, accept losses, send records again."""
