"""A cache of encoded images in memory."""

from keras_vit.data.optional_imports import tensorflow


class ByteCache:
    """Byte strings by index, filled while an input pipeline runs.

    `tf.data.Dataset.cache` would also store the order, which changes in each
    epoch.
    """

    def __init__(self):
        tf = tensorflow()
        # Created outside of the data set's function, which would create an
        # empty one at each call; an anonymous table lives as long as it is
        # used.
        with tf.init_scope(), tf.device("CPU"):
            self._table = tf.lookup.experimental.MutableHashTable(
                "int64", "string", "", experimental_is_anonymous=True
            )

    def has(self, index):
        """Return whether there is a string for an index."""
        return tensorflow().strings.length(self.get(index)) > 0

    def get(self, index):
        """Return the scalar string of an index, empty if there is none."""
        return tensorflow().ensure_shape(self._table.lookup(index), ())

    def put(self, index, value):
        """Store a scalar string and returns it."""
        tf = tensorflow()
        with tf.control_dependencies([self._table.insert(index, value)]):
            return tf.identity(value)
