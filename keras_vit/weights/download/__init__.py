"""Downloads: resumed, verified and atomic; and the cache that contains them."""

from keras_vit.weights.download.cache import cache_dir, verify
from keras_vit.weights.download.resume import fetch

__all__ = ["cache_dir", "fetch", "verify"]
