"""Sets of TensorFlow Datasets with random examples, without a download."""

import contextlib
from unittest import mock


@contextlib.contextmanager
def mocked_tfds(num_examples):
    """As `tfds.testing.mock_data`, but for lists of one length.

    TFDS draws a length for each feature of a sequence, and then refuses an
    example whose objects have more places than kinds, which is any of KITTI.
    Of a sequence of texts it makes arrays of one object, which tf.data refuses.
    """
    import numpy as np
    import tensorflow_datasets as tfds
    import tree
    from tensorflow_datasets.testing import mocking

    original = mocking.RandomFakeGenerator.__init__

    def of_one_length(self, *arguments, **keywords):
        keywords["constant_dynamic_shape"] = True
        original(self, *arguments, **keywords)

    encoded = mocking.EncodedRandomFakeGenerator.__iter__

    def of_plain_texts(self):
        for example in encoded(self):
            yield tree.map_structure(
                lambda x: x.item() if is_text(x) else x,
                example,
            )

    def is_text(x):
        return isinstance(x, np.ndarray) and x.dtype == object and x.ndim == 0

    with (
        mock.patch.object(
            mocking.RandomFakeGenerator, "__init__", of_one_length
        ),
        mock.patch.object(
            mocking.EncodedRandomFakeGenerator, "__iter__", of_plain_texts
        ),
        tfds.testing.mock_data(num_examples=num_examples),
    ):
        yield
