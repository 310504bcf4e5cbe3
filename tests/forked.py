"""Imports of forked processes; see processes.py.

No device is used here: each process selects its own.
"""

import keras  # noqa: F401
import orbax.checkpoint  # noqa: F401
import sklearn.datasets  # noqa: F401
import tensorflow as tf

import recipes.finetune  # noqa: F401

# As in with_keras.py, which these processes do not read.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
