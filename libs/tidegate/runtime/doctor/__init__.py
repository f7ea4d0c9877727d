"""Whether an application's surroundings are as it needs them, and what to do where they are not.

`diagnosis` runs it all. Each part gathers facts in a thin shell and judges them in small checks, which are pure.
"""
