"""Before torch is imported: one thread. What is tested is small, and two wait long for each other on a busy machine."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
