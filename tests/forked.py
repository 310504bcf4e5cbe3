"""Imports of forked processes; see processes.py.

No device is used here: each process selects its own.
"""

import keras  # noqa: F401
import orbax.checkpoint  # noqa: F401
import quick_tensorflow  # noqa: F401, as in with_keras.py
import sklearn.datasets  # noqa: F401

import recipes.finetune  # noqa: F401
