"""OWLv2, in transformers: the image tower and the heads.

Checked against owlv2 of transformers 5.24.
"""

from keras_vit.weights.rules import owlvit

TITLE = "OWLv2"
MODEL_TYPES = ("owlv2",)
TEXT_TOWER = owlvit.TEXT_TOWER
grid = owlvit.grid
RESIZES = owlvit.RESIZES
joined_config = owlvit.joined_config
FORMATS = owlvit.make("owlv2")
