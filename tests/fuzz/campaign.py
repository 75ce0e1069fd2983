"""A campaign in a process of its own: `python -m tests.fuzz.campaign FOLDER FIRST COUNT`.

Prints a line of JSON before and after every input, so that whoever started it knows which one it did not survive.
Memory is bounded, and an input that takes minutes ends the process with its traceback.
"""

import faulthandler
import json
import resource
import sys
import traceback
from pathlib import Path
from random import Random

import likewise
from tests.fuzz.kinds import Kind, all_kinds, cleared

MEMORY = 1 << 30  # bytes beyond what reading all valid files took
PATIENCE = 300  # seconds for one input; they only bound a hang
PACKAGE = str(Path(likewise.__file__).parent)


def main(folder: Path, first: int, count: int) -> None:
    kinds = all_kinds(folder / "made")
    for kind in kinds.values():  # everything is imported now, and all that is valid can be read
        if isinstance(kind, Kind):
            Kind(kind.files, kind.damaged, kind.read, lambda rng, content: content).try_out(
                Random(0), cleared(folder / "input")
            )
        else:
            kind(Random(0), folder)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    names = list(kinds)
    for number in range(first, first + count):
        name = names[number % len(names)]
        print(json.dumps({"input": number, "kind": name}), flush=True)
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        outcome = tried(kinds[name], Random(f"{name} {number}"), cleared(folder / "input"))
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"input": number, "kind": name, "outcome": outcome}), flush=True)


def tried(kind: object, rng: Random, folder: Path) -> str:
    """`read`, `refused`, or the traceback of what should not have been."""
    try:
        kind.try_out(rng, folder) if isinstance(kind, Kind) else kind(rng, folder)
    except (ValueError, OSError) as error:
        # One of ours is raised in the package; what another library raises has not been foreseen.
        if traceback.extract_tb(error.__traceback__)[-1].filename.startswith(PACKAGE):
            return "refused"
        return traceback.format_exc()
    except BaseException:
        return traceback.format_exc()
    return "read"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
