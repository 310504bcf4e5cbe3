"""The constructors of all families: a line for each."""

from keras_vit.models.as_mlp import *
from keras_vit.models.axial_resnet import *
from keras_vit.models.axial_vit import *
from keras_vit.models.beit import *
from keras_vit.models.bit import *
from keras_vit.models.clip import *
from keras_vit.models.conv_mlp import *
from keras_vit.models.cycle_mlp import *
from keras_vit.models.deit import *
from keras_vit.models.deit3 import *
from keras_vit.models.dinov2 import *
from keras_vit.models.dinov3 import *
from keras_vit.models.eamlp import *
from keras_vit.models.eva02 import *
from keras_vit.models.ff_only import *
from keras_vit.models.gmlp import *
from keras_vit.models.hire_mlp import *
from keras_vit.models.mixer import *
from keras_vit.models.mvit import *
from keras_vit.models.perception_encoder import *
from keras_vit.models.raft_mlp import *
from keras_vit.models.res_mlp import *
from keras_vit.models.s2_mlp import *
from keras_vit.models.siglip import *
from keras_vit.models.videomae import *
from keras_vit.models.vit import *
