"""Sets of TensorFlow Datasets with random examples, without a download."""

import contextlib
from unittest import mock


@contextlib.contextmanager
def mocked_tfds(num_examples):
    """As `tfds.testing.mock_data`, but for lists of one length.

    TFDS draws a length for each feature of a sequence, and then refuses an
    example whose objects have more places than kinds, which is any of KITTI.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.testing import mocking

    original = mocking.RandomFakeGenerator.__init__

    def of_one_length(self, *arguments, **keywords):
        keywords["constant_dynamic_shape"] = True
        original(self, *arguments, **keywords)

    with (
        mock.patch.object(
            mocking.RandomFakeGenerator, "__init__", of_one_length
        ),
        tfds.testing.mock_data(num_examples=num_examples),
    ):
        yield
