"""Settings of Keras in every process of the tests, which load many models."""

import functools

from keras.src.saving import saving_lib

# The attributes that are no state of a layer. Keras stores them under another
# name than it looks for, and makes a layer to find them for each one that it
# saves or loads: a tenth of the time of some tests.
if hasattr(saving_lib, "get_attr_skipset"):
    saving_lib.get_attr_skipset = functools.cache(saving_lib.get_attr_skipset)
