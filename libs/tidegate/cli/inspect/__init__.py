"""Commands that show what operators hold and what they have emitted."""
