"""Vision Transformers in Keras 3, on TensorFlow, JAX and PyTorch."""

from keras_vit import (
    _installation,  # selects an installed backend before Keras is imported
)
from keras_vit import data as data
from keras_vit import distribution as distribution
from keras_vit import evaluation as evaluation
from keras_vit import export as export
from keras_vit import heads as heads
from keras_vit import inspection as inspection
from keras_vit import layers as layers
from keras_vit import models as models
from keras_vit import text as text
from keras_vit import training as training
from keras_vit import weights as weights
from keras_vit.export import export_savedmodel as export_savedmodel
from keras_vit.inspection import cost as cost
from keras_vit.models import feature_maps as feature_maps
from keras_vit.models import from_pretrained as from_pretrained
from keras_vit.models import list_models as list_models
from keras_vit.models.constructors import *
from keras_vit.text import two_towers as two_towers
from keras_vit.text import zero_shot as zero_shot
from keras_vit.weights import decode_predictions as decode_predictions
from keras_vit.weights import imagenet_classes as imagenet_classes
from keras_vit.weights import imagenet_synsets as imagenet_synsets
from keras_vit.weights import list_weights as list_weights
from keras_vit.weights import save_checkpoint as save_checkpoint

__version__ = "0.2.0"
