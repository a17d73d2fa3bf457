"""Fresh Python processes that apply one function to many values; results come back in order.

They are started as programs of their own, so that neither the caller's script nor its heavy imports run again in them
(multiprocessing's spawn would do that), and nothing that the caller holds is inherited. Each has one line to the caller
and ends when it is cut, so that none survives a caller who was killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

from glassformer.errors import DataError, GlassformerError

Question = TypeVar("Question")
Answer = TypeVar("Answer")

_PROGRAM: Final = "import sys; from glassformer.data.workers import serve; serve(int(sys.argv[1]))"
_AHEAD: Final = 2  # questions a worker that are read before they are needed


class WorkerLostError(DataError):
    """A worker that is gone, killed or out of memory."""


class _Last(NamedTuple):
    """The question after which a worker may go, and its memory with it."""

    question: Any


class Worker:
    """One such process, on its line."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._line, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                process_group=0,  # Ctrl-C is the caller's to answer
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self.ask(work)

    def ask(self, question: Any, last: bool = False) -> None:
        """Send a question; its answer can be waited for later, also when a worker that was asked its last is gone."""
        try:
            self._line.send(_Last(question) if last else question)
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
        """Stop the process, whatever it does; who waits for an answer is told."""
        self._process.terminate()
        self._process.wait()

    def close(self) -> None:
        """Take down the line, once the process is ended and nobody waits on it."""
        self._line.close()

    def _loss(self) -> WorkerLostError:
        code = self._process.wait()
        return WorkerLostError(
            f"a worker process ended by itself (code {code}); if memory ran out, take fewer processes"
        )


def map_in_order(
    work: Callable[[Question], Answer], questions: Iterable[Question], n_processes: int
) -> Generator[Answer]:
    """Answer each question by `work`, in `n_processes` fresh processes; here if that is 1, or the questions are few.

    `work` and what goes in and out of it are pickled. Only a few questions are read ahead.
    """
    coming = iter(questions)
    first = list(islice(coming, _AHEAD * n_processes))
    if n_processes == 1 or len(first) < _AHEAD * n_processes:
        yield from map(work, chain(first, coming))
        return
    with _hired(work, n_processes) as workers:
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

        # A thread for each worker sends and waits, so that neither side ever waits for the other to listen.
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


@contextmanager
def _hired(work: Callable[[Any], Any], count: int) -> Iterator[list[Worker]]:
    workers: list[Worker] = []
    try:
        for _ in range(count):
            workers.append(Worker(work))
        yield workers
    finally:
        for worker in workers:
            worker.end()
            worker.close()


def serve(descriptor: int) -> None:
    """Be a worker: take the function, then answer questions until the line is cut."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that who is told to end clears up first
    with Connection(descriptor) as line:
        try:
            work = line.recv()
            is_last = False
            while not is_last:
                question = line.recv()
                is_last = isinstance(question, _Last)
                if is_last:
                    (question,) = question
                try:
                    answer = work(question)
                except GlassformerError as error:
                    answer = error
                line.send(answer)
        except (EOFError, ConnectionError):
            return  # the caller is gone
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is left to clear up
