"""What a program has defined: chains of calls, and the operators that they are together."""
