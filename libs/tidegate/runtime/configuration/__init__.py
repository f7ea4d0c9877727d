"""The configuration file of an application: how it is read and checked, and which changes are allowed."""
