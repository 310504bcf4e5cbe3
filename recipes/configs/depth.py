"""Depth: that of scenes of digits, or of your own images.

depth.py                  scenes of digits, from scratch, minutes on a CPU
depth.py:MODEL,DATASET    DPT on a named model, from its weights

DATASET is a folder of images and depth (`keras_vit.data.task_files`).
"""

from recipes import experiment, task_settings
from recipes.configs import detect


def get_config(arguments: str = "") -> task_settings.Config:
    """Return the config of "MODEL,DATASET"; without them, the quick try."""
    if not arguments:
        config = detect.scenes("depth", 400)
        config.model.architecture.num_layers = 4  # DPT reads four.
        config.task = task_settings.Task(name="depth", head_width=32)
        return config
    config = detect.from_weights("depth.py", arguments)
    config.data.image_size, config.data.batch_size = (384,), 16
    config.data.flip = True
    config.task = task_settings.Task(name="depth", colours=0.2)
    config.schedule = experiment.Schedule(num_epochs=25, warmup_steps=500)
    # Ranftl et al. 2021, section 4.1: a smaller rate for the backbone.
    config.optim = experiment.Optim(
        name="AdamW", base_lr=1e-4, weight_decay=0.01, layer_decay=0.8
    )
    return config
