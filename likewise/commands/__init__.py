"""One file for each command: the function that the command calls, which is also public in Python."""
