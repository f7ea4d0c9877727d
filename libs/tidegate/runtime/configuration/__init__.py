"""What the user asked for: the file of an application, and what a change of it would do."""
