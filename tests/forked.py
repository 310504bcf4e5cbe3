"""Imports of forked processes; see processes.py.

No device is used here: each process selects its own.
"""

import keras
import orbax.checkpoint  # noqa: F401
import quick_keras  # noqa: F401, as in with_keras.py
import quick_tensorflow  # noqa: F401, as in with_keras.py
import sklearn.datasets  # noqa: F401

import recipes.finetune  # noqa: F401

if keras.backend.backend() == "jax":
    import quick_jax  # noqa: F401
