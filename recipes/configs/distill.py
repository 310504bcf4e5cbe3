"""A student and its teacher: DeiT, and function matching.

distill.py                             digits, a small DeiT
distill.py:DeiT,DATASET                another data set, the same way
distill.py:DeiTS16,imagenet2012        as DeiT is distilled; also Ti16 and B16
distill.py:DeiTS16,imagenet2012,match  function matching with MixUp

--config.distill.teacher is the teacher. Without one the student learns from the
labels alone.
"""

from recipes import distill, experiment
from recipes.configs import pretrain


def get_config(arguments: str = "DeiT,digits") -> distill.Config:
    """Return the config of "MODEL,DATASET" or "MODEL,DATASET,match"."""
    model, *rest = arguments.split(",")
    if len(rest) not in (1, 2) or rest[1:] not in ([], ["match"]):
        raise ValueError(
            "The argument of distill.py must be MODEL,DATASET or "
            f"MODEL,DATASET,match. Received: {arguments!r}"
        )
    if model == "DeiT":
        config = _small(rest[0])
    else:
        # DeiT's protocol (2012.12877, Table 9), with hard distillation.
        base = pretrain.get_config(f"{model},{rest[0]}")
        config = experiment.extended(base, distill.Config)
    if rest[1:]:
        # Function matching (Beyer et al. 2022): images between all others, no
        # other augmentation but crops and flips; from memory.
        config.distill.method = "match"
        config.data.augment = ("MixUp(alpha=1.0)",)
        config.optim.label_smoothing = 0.0
    return config


def _small(dataset):
    """Return the same training for a small model, which takes a minute."""
    return distill.Config(
        model=experiment.Model(name="DeiT"),
        data=experiment.small_images(dataset),
        schedule=experiment.Schedule(num_epochs=60, warmup_steps=100),
        optim=experiment.Optim(
            base_lr=2e-3, name="adam", weight_decay=0.05, clip_norm=1.0
        ),
        evaluation=experiment.Evaluation(every=100),
    )
