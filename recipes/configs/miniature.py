"""The paper's central claims on small photographs.

miniature.py                  CIFAR-10 from TFDS; about two hours on two cores
miniature.py:DATASET          another data set of TFDS, a folder of images, an
                              npz file, or "digits" for a quick try
miniature.py:DATASET,cifar10  trained as cifar10.py does, in half the steps
"""

from recipes import experiment, fields, miniature
from recipes.configs import cifar10, pretrain
from recipes.study import Variant

# In both, models are of about equal cost for images of 32 pixels, and reduce
# the image to a grid of 8x8, by patches of 4 pixels or by the ResNet's root.


def get_config(arguments: str = "cifar10") -> miniature.Config:
    """Return the config of "DATASET" or "DATASET,cifar10"."""
    dataset, comma, training = arguments.partition(",")
    if not dataset or training != ("cifar10" if comma else ""):
        raise ValueError(
            "The argument of miniature.py must be DATASET or DATASET,cifar10. "
            f"Received: {arguments!r}"
        )
    config = _cifar10(dataset) if training else _short(dataset)
    config.run.data.channels = 3
    config.run.data.eval_fraction = 0.1
    config.run.model.dtype_policy = "mixed_bfloat16"
    if dataset == "digits":
        config.run.data.flip = False  # a mirrored 2 is not a 2
        config.sizes = (100, 1_000)
    return config


def _short(dataset):
    """Models of 22.6 to 23.7 million multiply-accumulates, untuned."""
    run = pretrain.get_config(f"ViT,{dataset},short")
    run.data.image_size = (32,)
    run.data.cache = True
    run.schedule.num_epochs = 0
    run.schedule.total_steps = 1_600
    run.evaluation.every = 400
    encoder = dict(hidden_size=64, num_heads=2, mlp_dim=256)
    stem = dict(resnet_depths=(1,), resnet_width=1.0)
    return _config(
        run,
        resnet=_of(run, "BiT", depths=(2, 2), width_factor=1.0),
        hybrid=_of(run, "ViT", patch_size=1, num_layers=4, **stem, **encoder),
        vit=_of(run, "ViT", patch_size=4, num_layers=6, **encoder),
    )


def _cifar10(dataset):
    """Models of 45.9 to 48.4 million, trained with local attention and Muon."""
    vit, hybrid = (cifar10.get_config(dataset + kind) for kind in ("", ",stem"))
    vit.model.architecture.num_layers = 5
    vit.schedule.total_steps //= 2
    vit.evaluation.every = vit.schedule.total_steps
    hybrid.schedule, hybrid.evaluation = vit.schedule, vit.evaluation
    for each in vit, hybrid:
        each.model.architecture.pooling = "token"  # Figure 9 has the average
    # Convolutions are trained as the hybrid's.
    resnet = _of(hybrid, "BiT", depths=(5, 4), width_factor=1.0)
    return _config(vit, resnet, hybrid, vit)


def _of(run, name, **architecture):
    """Return the same training of another model."""
    changes = {
        "model.name": name,
        "model.architecture": experiment.Architecture(**architecture),
    }
    return fields.changed(run, changes)


def _config(run, resnet, hybrid, vit):
    named = zip(miniature.MODELS, (resnet, hybrid, vit), strict=True)
    models = (
        Variant(name=name, changes=fields.difference(run, model))
        for name, model in named
    )
    return miniature.Config(run=run, models=tuple(models))
