"""Map a function over values in fresh Python processes, with results in order.

The processes are started as separate programs, so that neither the caller's script nor its heavy imports run again (as
with multiprocessing's spawn), and nothing is inherited. Each has one connection to the caller and ends when that is
closed, so that none outlives a caller that is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import chain, islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from glassformer.errors import DataError, GlassformerError

Question = TypeVar("Question")
Answer = TypeVar("Answer")

_PROGRAM: Final = "import sys; from glassformer.data.workers import serve; serve(int(sys.argv[1]))"
_AHEAD: Final = 2  # questions per worker that are read in advance


class WorkerLostError(DataError):
    """A worker that was killed or ran out of memory."""


class Worker:
    """One such process and its connection."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._line, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                process_group=0,  # Ctrl-C is handled by the caller
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self.ask(work)

    def ask(self, question: Any, last: bool = False) -> None:
        """Send a question; after the last one the worker exits, and the answer can still be read."""
        try:
            self._line.send((question, last))
        except OSError:
            raise self._loss() from None

    def answer(self) -> Any:
        """Wait for the answer to the last question."""
        try:
            answer = self._line.recv()
        except (EOFError, OSError):
            raise self._loss() from None
        if isinstance(answer, GlassformerError):
            raise answer
        return answer

    def end(self) -> None:
        """Terminate the process; a pending `answer` raises."""
        self._process.terminate()
        self._process.wait()

    def close(self) -> None:
        """Terminate the process and close the connection, on which no `answer` may be pending."""
        self.end()
        self._line.close()

    def _loss(self) -> WorkerLostError:
        code = self._process.wait()
        return WorkerLostError(
            f"a worker process ended unexpectedly (code {code}); if memory ran out, use fewer processes"
        )


def map_in_order(
    work: Callable[[Question], Answer], questions: Iterable[Question], n_processes: int
) -> Generator[Answer]:
    """Yield `work(question)` for each question, from `n_processes` processes; from this one if that is 1, or for few.

    `work`, questions and answers are pickled. Only a few questions are read ahead.
    """
    coming = iter(questions)
    first = list(islice(coming, _AHEAD * n_processes))
    if n_processes == 1 or len(first) < _AHEAD * n_processes:
        yield from map(work, chain(first, coming))
        return
    with ExitStack() as stack:
        workers = [stack.enter_context(closing(Worker(work))) for _ in range(n_processes)]
        free: SimpleQueue[Worker] = SimpleQueue()
        for worker in workers:
            free.put(worker)

        def ask(question: Question) -> Answer:
            worker = free.get()
            try:
                worker.ask(question)
                answer: Answer = worker.answer()
                return answer
            finally:
                free.put(worker)

        # One thread per worker sends and waits, so that neither side can block the other.
        with ThreadPoolExecutor(n_processes) as threads:
            pending: deque[Future[Answer]] = deque()
            try:
                for question in chain(first, coming):
                    pending.append(threads.submit(ask, question))
                    if len(pending) > _AHEAD * n_processes:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                threads.shutdown(wait=False, cancel_futures=True)
                for worker in workers:
                    worker.end()


def serve(descriptor: int) -> None:
    """Run as a worker: receive the function, then answer questions until the connection is closed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a terminated worker cleans up first
    with Connection(descriptor) as line:
        try:
            work, is_last = line.recv()
            while not is_last:
                question, is_last = line.recv()
                try:
                    answer = work(question)
                except GlassformerError as error:
                    answer = error
                line.send(answer)
        except (EOFError, ConnectionError):
            return  # the caller has ended
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is left to clean up
