"""What forked processes have imported; see processes.py.

No device is touched here: each process chooses its own.
"""

import keras  # noqa: F401
import orbax.checkpoint  # noqa: F401
import sklearn.datasets  # noqa: F401
import tensorflow  # noqa: F401

import recipes.finetune  # noqa: F401
