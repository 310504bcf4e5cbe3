"""Searches for the largest batch that fits, with the TPU compiler.

The compiler refuses a step that does not fit within seconds, after
optimisation. For a step that fits, it then generates code, which takes minutes
and is not needed here. So another process compiles, and is ended when code
generation begins.
"""

import multiprocessing
import os
import typing
from collections.abc import Callable
from multiprocessing import connection

from tools.plan_tpu import compiler

# libtpu's message when code generation begins, and the settings that enable it.
# If the message changes in a later version, compilation runs to its end.
_FITS = b"LLO optimizing"
_LOG = dict(
    TPU_MIN_LOG_LEVEL="0",
    TPU_STDERR_LOG_LEVEL="0",
    TPU_VMODULE="deepsea_compiler_backend=1",
)


class Answer(typing.NamedTuple):
    """Whether a batch fits; if not, bytes that it needs and that there are."""

    fits: bool
    needs: int = 0
    available: int = 0


class CompilerProcess:
    """A process that compiles; call `close` at the end.

    Args:
        make_step: Returns the compiler.Step; called in the other process, so it
            must be picklable.
    """

    def __init__(self, make_step: Callable):
        self._make_step = make_step
        self._process: multiprocessing.process.BaseProcess | None = None

    def __call__(self, batch_size: int) -> Answer:
        """Return whether a batch of all devices fits."""
        if self._process is None:
            self._start()
        self._ask.send(batch_size)
        log = b""
        while True:
            ready = connection.wait([self._ask, self._log])
            # All of the log first: it says why a process has ended.
            part = self._log in ready and os.read(self._log.fileno(), 65_536)
            if part:
                log = log[-10_000:] + part
                if _FITS in log:
                    self.close()
                    return Answer(fits=True)
            elif self._ask in ready:
                try:
                    answer = self._ask.recv()
                except (EOFError, ConnectionError):
                    self.close()
                    raise RuntimeError(
                        "The process of the compiler has ended:\n"
                        + log.decode(errors="replace")
                    ) from None
                if isinstance(answer, Exception):
                    raise answer
                return answer

    def _start(self):
        # A process that has imported everything once is forked at each start.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["recipes.training_step"])
        self._ask, theirs = context.Pipe()
        self._log, their_log = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_answer,
            args=(os.environ | _LOG, self._make_step, theirs, their_log),
            daemon=True,
        )
        self._process.start()
        theirs.close()
        their_log.close()

    def close(self) -> None:
        """End the other process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._ask.close()
            self._log.close()
            self._process = None


def _answer(environment, make_step, questions, log):
    """Run as the main function of the other process."""
    os.dup2(log.fileno(), 2)
    os.environ.update(environment)
    try:
        step = make_step()
        while True:
            batch_size = questions.recv()
            try:
                step.compile(batch_size)
                questions.send(Answer(fits=True))
            except compiler.DoesNotFit as error:
                answer = Answer(False, error.needs, error.available)
                questions.send(answer)
    except EOFError:
        pass
    except Exception as error:
        questions.send(RuntimeError(f"{type(error).__name__}: {error}"))


def largest(ask: Callable, start: int, fixed: int) -> int:
    """Return the largest of `sizes()` that fits; 0 if 1 does not.

    Memory grows nearly in proportion to the batch, so that each refusal gives
    an estimate of the limit. Near the limit the compiler saves memory, so that
    sizes must be tried.

    Args:
        ask: Returns an `Answer` for a number of images on each device.
        start: A number of images on each device that is probably too large.
        fixed: Bytes on each device that do not depend on the batch.
    """
    fits, refused, guess = 0, None, start
    while True:
        tried = sizes(2 * start if refused is None else refused - 1)
        between = [size for size in tried if size > fits]
        if not between:
            return fits
        size = min(between, key=lambda size: abs(size - guess))
        answer = ask(size)
        if answer.fits:
            fits = size
            start = max(start, size)
            guess = 2 * size
            if refused is not None:
                guess = min(1.2 * size, (size + refused) / 2)
            continue
        refused = size
        guess = (fits + refused) / 2
        if answer.needs > fixed:
            room = max(0, answer.available - fixed)
            # A tenth more, since the compiler saves memory near the limit, and
            # since a refusal takes less time than a success.
            guess = 1.1 * size * room / (answer.needs - fixed)


def sizes(most: int) -> list[int]:
    """Return the batches to try, in steps of a sixteenth: ... 31, 32, 34."""
    found, size = [], 1
    while size <= most:
        found.append(size)
        size += max(1, 2 ** (size.bit_length() - 5))
    return found
