"""Latency of requests that are merged into batches."""

import time

import pytest

from tools import serving_load

pytestmark = pytest.mark.backend("tensorflow")


def test_each_request_is_answered_once():
    sizes: list[int] = []

    def answer(count):
        sizes.append(count)
        time.sleep(0.02)  # however many there are

    few = serving_load.latencies(answer, 1, rate=80, seconds=0.5)
    alone, sizes = sizes, []
    merged = serving_load.latencies(answer, 8, rate=80, seconds=0.5)
    assert len(few) == len(merged) == sum(alone) == sum(sizes) == 40
    assert set(alone) == {1} and 1 < max(sizes) <= 8


def test_the_report_has_a_row_for_each_load():
    def serve(image_bytes):
        import tensorflow as tf

        return dict(scores=tf.zeros(len(image_bytes)))

    measured = serving_load.measure(serve, [1, 4], [0.001], seconds=0.2)
    assert len(serving_load.draw(*measured).axes[0].lines) == 4
    text = serving_load.report(*measured)
    first, second = text.split("\n\n")
    assert first.startswith("| batch | images/s |")
    assert "| batches to 1 | batches to 4 |" in second
    assert second.count(" ms |") == 2
