"""Process many rows in threads, keeping their order and holding only a few chunks at once.

Threads are enough because Pillow releases the GIL while it decodes and resizes, and they share arrays and open files.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def in_order(tasks: Iterable[Callable[[], Result]]) -> Generator[Result]:
    """Yield the results of `tasks` in their order, starting new tasks only as results are taken."""
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pool = ThreadPoolExecutor(workers)
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(task))
            if len(waiting) > 4 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def with_progress_bar(chunks: Iterable[list[Result]], total: int, what: str, progress: bool) -> Iterator[list[Result]]:
    """Yield the chunks, with a progress bar on stderr if that is a terminal."""
    if not (progress and sys.stderr.isatty()):
        yield from chunks
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from likewise.printing import printable

    described = TextColumn("{task.description}", markup=False)  # a name may contain `[a]`, which is not markup
    columns = (described, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(what), total=total)
        for chunk in chunks:
            yield chunk
            bar.advance(task, len(chunk))
