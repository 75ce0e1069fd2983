"""One file a command: the function that it calls, which is also public in Python, and what that returns."""
