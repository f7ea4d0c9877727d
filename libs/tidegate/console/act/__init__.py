"""What the console may do: `actions` makes command lines of forms, `jobs` runs them, and `edited` previews a changed
configuration. An action is a command in a process of its own, so that the console and a terminal do the same.
"""
