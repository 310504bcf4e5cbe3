"""VTAB-1k, as in appendix B.1.1 and Table 4 of the paper.

vtab.py:MODEL         all tasks, for recipes.vtab
vtab.py:MODEL,TASK    one task, for recipes.finetune

TASK is one of `keras_vit.data.vtab.TASKS`, such as clevr_count.
"""

from recipes import experiment, fields, vtab
from recipes.configs import finetune


def get_config(arguments: str = "ViTL16") -> vtab.Config | experiment.Config:
    """Return the config of "MODEL" or "MODEL,TASK"."""
    model, comma, task = arguments.partition(",")
    if not model or (comma and not task):
        raise ValueError(
            "The argument of vtab.py must be MODEL or MODEL,TASK, such as "
            f"ViTB16,clevr_count. Received: {arguments!r}"
        )
    run = finetune.get_config(f"{model},vtab")
    side = run.data.image_size[0] or 384
    run = fields.changed(
        run,
        {
            "data.image_size": (side,),
            "data.channels": 3,
            # Preprocessed as in BiT, except for the resolution: 448 and 384.
            "data.crop": "resize",
            "data.resize": side * 448 // 384,
            "data.flip": True,
            "data.batch_size": 512,
            "schedule.total_steps": 2_500,
            "schedule.num_epochs": 0,
            "optim.base_lr": 0.01,
            # Evaluate once, at the end: the best of several evaluations would
            # be selected by the test images.
            "evaluation.every": 2_500,
        },
    )
    return vtab.config_of(run, task) if task else vtab.Config(run=run)
