"""Before torch is imported: its threads do not wait for each other busily, as the command line has it."""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "20000")
