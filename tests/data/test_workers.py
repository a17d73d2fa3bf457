"""Fresh processes that answer questions in order."""

from __future__ import annotations

import math
import operator
import os
import time
from contextlib import closing

import pytest

from glassformer.data.workers import Worker, map_in_order
from glassformer.errors import DataError, ModelFileError
from glassformer.text.tokenizer import Tokenizer


@pytest.mark.parametrize("n_processes", [1, 2, 3])
def test_answers_come_in_order(n_processes: int) -> None:
    assert list(map_in_order(math.sqrt, range(100), n_processes)) == [math.sqrt(n) for n in range(100)]


def test_a_few_questions_are_answered_here() -> None:
    assert set(map_in_order(_process, range(3), 2)) == {os.getpid()}
    assert list(map_in_order(_process, [], 2)) == []


def _process(_: object) -> int:
    return os.getpid()


def test_only_a_few_questions_are_read_ahead() -> None:
    questions = iter(range(1000))
    with closing(map_in_order(operator.neg, questions, 2)) as answers:
        assert next(answers) == 0
        assert next(questions) < 10


def test_a_large_answer_and_a_large_question_pass_each_other() -> None:
    """Neither fits into a pipe: if the two sides waited for each other here, the test would hang."""
    large = [bytes([n]) * 2**20 for n in range(12)]
    assert list(map_in_order(bytes.upper, large, 2)) == large


def test_a_users_mistake_comes_through() -> None:
    worker = Worker(Tokenizer.load)
    worker.ask("/nowhere")
    with pytest.raises(ModelFileError, match=r"^/nowhere: no such tokenizer"):
        worker.answer()
    worker.end()
    worker.close()


def test_after_the_last_question_a_worker_goes() -> None:
    worker = Worker(math.sqrt)
    worker.ask(9)
    assert worker.answer() == 3
    worker.ask(16, last=True)
    assert worker._process.wait(timeout=60) == 0
    assert worker.answer() == 4
    worker.end()
    worker.close()


@pytest.mark.parametrize("questions", [[3] * 20, [*range(8), 3, *range(100, 200)]])
def test_a_worker_that_dies_is_an_error(questions: list[int]) -> None:
    with pytest.raises(DataError, match=r"^a worker process ended unexpectedly \(code \d\)"):
        list(map_in_order(os._exit, questions, 2))


def test_who_stops_asking_leaves_no_process() -> None:
    answers = map_in_order(time.sleep, [0.0] * 8 + [1000.0] * 8, 2)
    next(answers)
    start = time.monotonic()
    answers.close()
    assert time.monotonic() - start < 20
