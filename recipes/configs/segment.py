"""Segmentation: classes of the pixels of digits in scenes, or of your images.

segment.py                  digits in scenes, from scratch, minutes on a CPU
segment.py:MODEL,DATASET    EoMT on a named model, its weights and its recipe
segment.py:MODEL,DATASET,instances  the same for the masks of objects
segment.py:MODEL,DATASET,panoptic   the same for objects and regions

DATASET is a folder of images and masks, or for objects of COCO's form
(`keras_vit.data.task_files`), or scene_parse150 of TensorFlow Datasets.
"""

from keras_vit.models import families
from recipes import experiment, task_settings
from recipes.configs import detect


def get_config(arguments: str = "") -> task_settings.Config:
    """Return the config of "MODEL,DATASET"; without them, the quick try."""
    if not arguments:
        config = detect.scenes("segmentation", 2700)
        # Patches of 4 pixels: the head's maps are as fine as they are.
        config.model.architecture.resnet_depths = (2,)
        config.model.architecture.num_layers = 2
        config.task = task_settings.Task(name="segmentation", head="linear")
        config.data.batch_size, config.optim.base_lr = 8, 0.002
        return config
    base, comma, kind = arguments.rpartition(",")
    if kind in ("instances", "panoptic"):
        return _published(base, kind)
    return _published(arguments, "segmentation")


def _published(arguments, kind):
    """Return the recipe of Kerssies et al. 2025, appendix A.

    The settings are those of configs/dinov2 in the authors' code: for classes
    of pixels ADE20K's, otherwise COCO's.
    """
    config = detect.from_weights("segment.py", arguments)
    pixels = kind == "segmentation"
    config.data.image_size = (512,) if pixels else (640,)
    config.data.batch_size, config.data.flip = 16, True
    config.task = task_settings.Task(
        name=kind,
        head="eomt",
        num_queries=100 if pixels else 200,
        num_blocks=_num_blocks(config.model.name),
        masked_attention=True,
        scales=(0.5, 2.0) if pixels else (0.1, 2.0),
        colours=0.5 if pixels else 0.0,
        eval_view="windows" if pixels else "padded",
    )
    config.schedule = experiment.Schedule(
        num_epochs=31 if pixels else 12,
        warmup_steps=500,
        name="PolynomialDecay(end_learning_rate=0.0, power=0.9)",
    )
    config.optim = experiment.Optim(
        name="AdamW",
        base_lr=1e-4,
        weight_decay=0.05,
        clip_norm=0.01,
        layer_decay=0.8,
        backbone_warmup=(500, 1000),
    )
    return config


def _num_blocks(model):
    """Return the last blocks for queries: 3 of 12, 4 of 24 and 5 of 40."""
    depth = families.sizes_of(model).get("num_layers", 0)
    return 3 if depth <= 12 else 4 if depth <= 24 else 5
