"""Segmentation: classes of the pixels of digits in scenes, or of your images.

segment.py                  digits in scenes, from scratch, minutes on a CPU
segment.py:MODEL,DATASET    EoMT on a named model, its weights and its recipe

DATASET is a folder of images and masks (`keras_vit.data.task_files`), or
scene_parse150 of TensorFlow Datasets.
"""

from recipes import experiment, tasks
from recipes.configs import detect


def get_config(arguments: str = "") -> tasks.Config:
    """Return the config of "MODEL,DATASET"; without them, the quick try."""
    if not arguments:
        config = detect.scenes("segmentation", 5000)
        # Patches of 4 pixels: the head's maps are as fine as they are.
        config.model.architecture.resnet_depths = (1,)
        config.task = tasks.Task(name="segmentation", head="linear")
        config.data.batch_size, config.optim.base_lr = 8, 0.002
        return config
    config = detect.from_weights("segment.py", arguments)
    # Kerssies et al. 2025, appendix: AdamW, layer-wise rates, 512 pixels.
    config.data.image_size, config.data.batch_size = (512,), 16
    config.data.flip = True
    config.task = tasks.Task(
        name="segmentation",
        num_queries=100,
        scales=(0.5, 2.0),
        colours=0.4,
    )
    config.schedule = experiment.Schedule(num_epochs=31, warmup_steps=500)
    config.optim = experiment.Optim(
        name="AdamW",
        base_lr=1e-4,
        weight_decay=0.05,
        clip_norm=0.01,
        layer_decay=0.8,
    )
    return config
