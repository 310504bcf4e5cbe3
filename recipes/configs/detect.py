"""Detection: boxes of digits in scenes, or of objects in your own images.

detect.py                  digits in scenes, from scratch, some minutes on a CPU
detect.py:MODEL,DATASET    YOLOS on a named model, its weights and its recipe

DATASET is a folder of COCO's form (`keras_vit.data.task_files`), or coco/2017
or voc/2012 of TensorFlow Datasets.
"""

from keras_vit.models import families
from recipes import experiment, task_settings
from recipes.configs import finetune


def get_config(arguments: str = "") -> task_settings.Config:
    """Return the config of "MODEL,DATASET"; without them, the quick try."""
    if not arguments:
        return scenes("detection", 2000)
    config = from_weights("detect.py", arguments)
    # Fang et al. 2021, section 4.1, and the authors' commands and main.py: the
    # smallest model at 512 pixels with 16 images, the others at 800 with 8.
    # Their images are of any size, these are cropped or padded to squares; the
    # scales are the authors' shorter sides, 256 to 608 and 480 to 800.
    tiny = config.model.name in ("DeiTTi16", "ViTTi16")
    config.data.image_size = (512,) if tiny else (800,)
    config.data.batch_size = 16 if tiny else 8
    config.data.flip = True
    config.task = task_settings.Task(
        name="detection",
        num_queries=100,
        mid_positions=not tiny,
        scales=(0.5, 1.1875) if tiny else (0.6, 1.0),
    )
    config.schedule = experiment.Schedule(
        num_epochs=300 if tiny else 150, warmup_steps=0, final_lr=1e-7
    )
    config.optim = experiment.Optim(
        name="AdamW",
        base_lr=5e-5 if tiny else 2.5e-5,
        weight_decay=1e-4,
        clip_norm=0.1,
    )
    return config


def from_weights(file: str, arguments: str) -> task_settings.Config:
    """Return a config with the model and the data set of an argument.

    Args:
        file: Name of the config's file, for an error.
        arguments: "MODEL,DATASET".

    Raises:
        ValueError: If the argument has another form.
    """
    model, dataset = experiment.model_and_dataset(
        arguments, file, "DeiTS16,path/to/images"
    )
    found = finetune.from_weights(model, dataset)
    config = experiment.extended(found, task_settings.Config)
    if families.sizes_of(model).get("patch_size") == 14:
        # As the authors of EoMT do with DINOv2: the kernel is resized.
        config.model.architecture.patch_size = 16
    return config


def scenes(task: str, total_steps: int) -> task_settings.Config:
    """Return a config for scenes of digits, from scratch.

    Few queries, and losses after each block: set prediction learns slowly.

    Args:
        task: A name of `task_settings.Task`.
        total_steps: What takes less than five minutes on two cores.
    """
    return task_settings.Config(
        model=experiment.Model(
            name="ViT",
            architecture=experiment.Architecture(
                patch_size=1,
                hidden_size=96,
                num_layers=3,
                num_heads=4,
                mlp_dim=192,
                resnet_depths=(1, 1),
                resnet_width=0.5,
            ),
        ),
        data=experiment.Data(dataset="digit_scenes", batch_size=16),
        task=task_settings.Task(
            name=task,
            num_queries=16,
            max_objects=3,
            auxiliary_blocks=(1, 2),
            anchors=True,
            patch_classes=True,
        ),
        schedule=experiment.Schedule(total_steps=total_steps, warmup_steps=200),
        optim=experiment.Optim(
            name="AdamW", base_lr=0.001, weight_decay=0.01, clip_norm=1.0
        ),
        evaluation=experiment.Evaluation(every=total_steps // 2),
    )
