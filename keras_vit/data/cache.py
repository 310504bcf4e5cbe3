"""A cache of encoded images in memory."""

from keras_vit.data.optional_imports import tensorflow


class ByteCache:
    """Byte strings by number, filled while an input pipeline runs.

    Not `tf.data.Dataset.cache`, which stores an order as well: here each epoch
    has its own.
    """

    def __init__(self):
        tf = tensorflow()
        # Outside of the data set's function that asks for it, which would
        # begin an empty one at each call; anonymous ones live while used.
        with tf.init_scope(), tf.device("CPU"):
            self._table = tf.lookup.experimental.MutableHashTable(
                "int64", "string", "", experimental_is_anonymous=True
            )

    def has(self, index):
        """Returns whether there is a string for a number."""
        return tensorflow().strings.length(self.get(index)) > 0

    def get(self, index):
        """Returns the scalar string of a number; empty where there is none."""
        return tensorflow().ensure_shape(self._table.lookup(index), ())

    def put(self, index, value):
        """Stores a scalar string and returns it."""
        tf = tensorflow()
        with tf.control_dependencies([self._table.insert(index, value)]):
            return tf.identity(value)
