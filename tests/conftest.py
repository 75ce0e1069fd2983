"""Before torch is imported: one thread. What is tested is small, and two wait long for each other on a busy machine."""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
if sys.argv[0] == "-c":  # a process of pytest-xdist: what it runs is a program that can be started anew
    sys.argv[0] = "pytest"
