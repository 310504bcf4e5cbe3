"""Studies of the ViT paper, each a table of variants of one run.

study.py                     Figure 8 on digits
study.py:STUDY,DATASET       figure_4, figure_8, figure_9, figure_10, figure_13,
                             table_5, table_7, table_8 or scaling

With jft300m, imagenet21k or imagenet2012 the models and their training are
those of Table 3, with jft3b those of "Scaling Vision Transformers", and
--config.run.data.dataset gives the path of the images. Accuracy is few-shot on
ImageNet where the paper reports that. With another name of TFDS, a folder of
images or an npz file the models are small enough for processors, images have 32
pixels per side, and accuracy is measured on the evaluation images. Figures are
numbered as in the final edition.

The paper states few of the values that it varies. Where it states none, the
values are ours:

figure_4   shares 3, 10, 30 and 100 % of the images (9, 30, 90 and 303
           million), random, nested; the same steps; early stopping
figure_8   multiples of 8 layers, width 1024, MLP 2048 and patches of 32
figure_9   class token or average, the average also with 3/8 of the rate
figure_10  7 or 14 epochs, rate 2e-4 or 4e-4, weight decay 0.01 or 0.1
figure_13  axial models beside ViTs and a ResNet, against cost
table_5    weight decay, dropout and label smoothing, tuned as in section 4.3
           for the smaller sets; --config.run.data.train_images selects subsets
table_7    SGD against Adam, then fine-tuning
table_8    position embeddings, and where they are added
scaling    seven sizes for tools.scaling_law, of the paper's sets for jft3b
           alone; the small ones are ours
"""

import dataclasses
from typing import Any

from recipes import experiment, fields, study
from recipes.configs import pretrain, sweep
from recipes.study import Times, Variant

PAPER = ("jft300m", "imagenet21k", "imagenet2012", "jft3b")
# The model of the paper's study. For Figures 9 and 10 and for the search of
# regularisation the paper names none or several.
MODELS = {
    "figure_4": "ViTB32",
    "figure_8": "ViTB32",
    "figure_9": "ViTB16",
    "figure_10": "ViTL16",
    "figure_13": "ViTB32",
    "table_5": "ViTB16",
    "table_7": "BiTR50x1",
    "table_8": "ViTB16",
    "scaling": "ViTB16",
}
SMALL: dict[str, Any] = dict(
    num_layers=4, hidden_size=64, num_heads=4, mlp_dim=128
)
TRANSFERS = (
    "imagenet2012",
    "cifar10",
    "cifar100",
    "oxford_iiit_pet",
    "oxford_flowers102",
)


def get_config(arguments: str = "figure_8,digits") -> study.Config:
    """Return the config of "STUDY,DATASET"."""
    name, comma, dataset = arguments.partition(",")
    if name not in MODELS or not (comma and dataset):
        raise ValueError(
            "The argument of study.py must be STUDY,DATASET with one of the "
            f"studies {', '.join(MODELS)}, such as figure_8,digits. Received: "
            f"{arguments!r}"
        )
    run = _run(MODELS[name], dataset)
    return dataclasses.replace(globals()[f"_{name}"](run), name=name)


def _run(model, dataset):
    """Return the config that the variants of a study share."""
    if dataset in PAPER:
        run = pretrain.get_config(f"{model},{dataset}")
        if dataset != "imagenet2012":
            run.evaluation.fewshot_dataset = "imagenet2012"
            run.evaluation.fewshot_shots = (5,)
        return run
    run = pretrain.get_config(f"ViT,{dataset}")
    is_digits = dataset == "digits"
    run.model.architecture = experiment.Architecture(
        **SMALL, patch_size=2 if is_digits else 4
    )
    run.data.image_size = (0,) if is_digits else (32,)
    run.data.flip = experiment.may_flip(dataset)
    run.schedule.num_epochs = 20
    run.evaluation.fewshot_dataset = ""
    return run


def _figure_4(run):
    """Compare several models on subsets of the pre-training set."""
    if run.data.dataset not in PAPER:
        models = {
            "ResNet": _difference(run, _of_defaults(run, "BiT")),
            "ViT": {},
            "ViT, half as wide": _scaled(1 / 2, "hidden_size", "mlp_dim"),
        }
    else:
        models = _pretrained(
            run,
            {
                "ResNet50x1": "BiTR50x1",
                "ResNet152x2": "BiTR152x2",
                "ViT-B/32": "ViTB32",
                "ViT-B/16": "ViTB16",
                "ViT-L/32": "ViTL32",
                "ViT-L/16": "ViTL16",
            },
        )
        # ViT-B/32 with all hidden dimensions halved, trained like ViT-B/32.
        half = 384 if run.model.architecture.representation_size else 0
        models["ViT-b/32"] = {
            "model.name": "ViTS32",
            "model.architecture.representation_size": half,
        }
    shares = {"3": 0.03, "10": 0.1, "30": 0.3, "100": 1.0}
    return study.Config(
        title="Subsets of the pre-training set",
        run=run,
        variants=tuple(
            Variant(
                name=f"{_folder(line)}_{percent}_percent",
                line=line,
                changes={**changes, "data.train_images": Times(share)},
            )
            for line, changes in models.items()
            for percent, share in shares.items()
        ),
        report="best",
        x="train_images",
        x_label="training images",
    )


def _figure_8(run):
    """Scale depth, width, MLP and patch size separately, and all together."""
    if run.data.dataset in PAPER:
        run.model.architecture = dataclasses.replace(
            run.model.architecture,
            num_layers=8,
            hidden_size=1024,
            num_heads=16,  # of width 64, as in all of Table 1 except H/14
            mlp_dim=2048,
            patch_size=32,
            representation_size=1024
            * bool(run.model.architecture.representation_size),
        )
    else:
        run.model.architecture.patch_size *= 2  # variants divide it
    width = ["hidden_size", "num_heads"]
    if run.model.architecture.representation_size:
        width.append("representation_size")
    everything = ("num_layers", *width, "mlp_dim")
    lines = {
        "depth": {f: _scaled(f, "num_layers") for f in (1 / 4, 1 / 2, 2, 4, 8)},
        "width": {f: _scaled(f, *width) for f in (1 / 4, 1 / 2, 2)},
        "width of the MLP": {
            f: _scaled(f, "mlp_dim") for f in (1 / 4, 1 / 2, 2, 4)
        },
        "patch size": {f: _scaled(f, "patch_size") for f in (1 / 2, 1 / 4)},
        "all": {
            # Patches of 64 would not divide 224 pixels.
            1 / 2: _scaled(1 / 2, *everything),
            2: _scaled(2, *everything) | _scaled(1 / 2, "patch_size"),
        },
    }
    return study.Config(
        title="Scaling the dimensions of ViT",
        run=run,
        variants=(
            Variant(name="base"),
            *(
                Variant(
                    name=f"{_folder(line)}_x{factor:g}",
                    line=line,
                    changes=changes,
                )
                for line, by_factor in lines.items()
                for factor, changes in by_factor.items()
            ),
        ),
        x="compute",
        x_label="relative compute",
    )


def _figure_9(run):
    """Compare the class token with the average, which needs another rate."""
    gap = {"model.architecture.pooling": "gap"}
    return study.Config(
        title="Class token against global average pooling",
        run=run,
        variants=(
            Variant(name="token", line="class token"),
            Variant(name="gap", line="average", changes=gap),
            Variant(
                name="gap_lower_rate",
                line="average, 3/8 of the rate",
                changes=gap | {"optim.base_lr": Times(3 / 8)},
            ),
        ),
        figure="curves",
        x_label="epochs",
    )


def _figure_10(run):
    """Compare position embeddings learned with other hyper-parameters."""
    short = {"schedule.num_epochs": Times(1 / 2)}
    return study.Config(
        title="Position embeddings with other hyper-parameters",
        run=run,
        variants=(
            Variant(
                name="half_epochs_half_rate_low_decay",
                line="half the epochs and the rate, a tenth of the decay",
                changes=short
                | {
                    "optim.base_lr": Times(1 / 2),
                    "optim.weight_decay": Times(1 / 10),
                },
            ),
            Variant(name="half_epochs", line="half the epochs", changes=short),
            Variant(name="base", line="all epochs"),
        ),
        figure="positions",
    )


def _figure_13(run):
    """Compare axial models with those that they are made from."""
    if run.data.dataset in PAPER:
        lines = _pretrained(
            run,
            {
                "AxialResNet-50": "AxialResNet50",
                "Axial-ViT-B/32": "AxialViTB32",
                "Axial-ViT-B/16": "AxialViTB16",
                "ViT-B/32": "ViTB32",
                "ViT-B/16": "ViTB16",
                "ResNet50": "BiTR50x1",
            },
        )
    else:
        lines = {
            "Axial-ResNet": _difference(run, _of_defaults(run, "AxialResNet")),
            "Axial-ViT": {"model.name": "AxialViT"},
            "ViT": {},
            "ResNet": _difference(run, _of_defaults(run, "BiT")),
        }
    return study.Config(
        title="Axial models",
        run=run,
        variants=tuple(
            Variant(name=_folder(line), line=line, changes=changes)
            for line, changes in lines.items()
        ),
        x="compute",
        x_label="relative compute",
    )


def _table_5(run):
    """Vary weight decay, dropout and label smoothing on smaller sets."""
    # Do not select by the evaluation images.
    if not run.evaluation.fewshot_dataset:
        run.data.dev_fraction = 0.01 if run.data.dataset in PAPER else 0.1
    return study.Config(
        title="Regularisation",
        run=run,
        variants=tuple(
            Variant(
                name=f"decay_{decay:g}_dropout_{dropout:g}_smoothing_{smooth:g}",
                line=f"dropout {dropout:g}, smoothing {smooth:g}",
                x=decay,
                changes={
                    "optim.weight_decay": decay,
                    "model.architecture.dropout_rate": dropout,
                    "optim.label_smoothing": smooth,
                },
            )
            for dropout in (0.0, 0.1)
            for smooth in (0.0, 0.1)
            for decay in (0.03, 0.1, 0.3)
        ),
        x_label="weight decay",
    )


def _table_7(run):
    """Fine-tune ResNets pre-trained with SGD and with Adam on other sets."""
    if run.data.dataset not in PAPER:
        run = _of_defaults(run, "BiT")
        to = sweep.get_config(f"BiT,{run.data.dataset}")
        to.run.data.image_size = run.data.image_size
        to.run.schedule.num_epochs = 10
        transfers = (to,)
        models = {"ResNet": (run, fields.changed(run, _sgd(run)))}
    else:
        transfers = tuple(
            sweep.get_config(f"BiTR50x1,{name}") for name in TRANSFERS
        )
        models = {
            line: tuple(
                pretrain.get_config(f"{model},{run.data.dataset}{ending}")
                for ending in ("", ",sgd")
            )
            for line, model in (
                ("ResNet50", "BiTR50x1"),
                ("ResNet152x2", "BiTR152x2"),
            )
        }
    return study.Config(
        title="SGD against Adam for pre-training ResNets",
        run=run,
        variants=tuple(
            Variant(
                name=f"{line}_{optimizer}",
                line=f"{line}, {optimizer}",
                changes=_difference(run, own),
            )
            for line, both in models.items()
            for optimizer, own in zip(("Adam", "SGD"), both, strict=True)
        ),
        transfers=transfers,
        x_label="fine-tuned on",
    )


def _sgd(run):
    """Return BiT's training, its rate scaled with the batch size."""
    return {
        "optim.name": "sgd",
        "optim.base_lr": 0.03 * run.data.batch_size / 256,
        "schedule.name": "cosine",
        "optim.weight_decay": 1e-3,
        "optim.clip_norm": 0.0,
    }


def _table_8(run):
    """Compare no, 1-D, 2-D and relative position embeddings by placement."""
    kinds = {
        "no embedding": ("none", ("stem",)),
        "1-D": ("learned_1d", ("stem", "every_layer", "every_layer_shared")),
        "2-D": ("learned_2d", ("stem", "every_layer", "every_layer_shared")),
        "relative": ("relative", ("stem",)),
    }
    return study.Config(
        title="Position embeddings",
        run=run,
        variants=tuple(
            Variant(
                name=f"{kind}_{placement}",
                line=line,
                x=placement,
                changes={
                    "model.architecture.position_embedding": kind,
                    "model.architecture.position_placement": placement,
                },
            )
            for line, (kind, placements) in kinds.items()
            for placement in placements
        ),
        x_label="where embeddings are added",
    )


def _scaling(run):
    """Train seven sizes on the same images."""
    if run.data.dataset in PAPER and run.data.dataset != "jft3b":
        # Table 3 has another rate and another head for each model.
        raise ValueError(
            "scaling takes jft3b, or images of 32 pixels. Received: "
            f"{run.data.dataset!r}"
        )
    if run.data.dataset == "jft3b":
        # Table 2 of the paper; "s" from memory.
        small = dict(num_layers=6, hidden_size=256, num_heads=8, mlp_dim=1024)
        sizes = {
            "ViT-s/28": ("ViTS16", dict(small, patch_size=28)),
            "ViT-Ti/16": ("ViTTi16", {}),
            "ViT-S/16": ("ViTS16", {}),
            "ViT-B/16": ("ViTB16", {}),
            "ViT-L/16": ("ViTL16", {}),
            "ViT-g/14": ("ViTg14", {}),
            "ViT-G/14": ("ViTG14", {}),
        }
    else:
        run.model.architecture.dropout_rate = 0.0
        if run.data.dataset != "digits":
            run.data.batch_size = 128
            run.schedule.num_epochs = 4
            run.evaluation.every = 0
        # Of about 1 to 22 million multiply-accumulates for 32 pixels, the last
        # twice that before it.
        sizes = {
            f"ViT-{depth}x{width}": (
                "ViT",
                dict(
                    num_layers=depth,
                    hidden_size=width,
                    num_heads=width // 16,
                    mlp_dim=4 * width,
                ),
            )
            for depth, width in (
                *((1, 24), (1, 32), (2, 32), (2, 48)),
                *((3, 48), (3, 64), (4, 80)),
            )
        }
    return study.Config(
        title="Seven sizes",
        run=run,
        variants=tuple(
            Variant(
                name=_folder(line),
                line="ViT",
                changes={"model.name": model}
                | {f"model.architecture.{k}": v for k, v in size.items()},
            )
            for line, (model, size) in sizes.items()
        ),
        x="compute",
        x_label="relative compute",
    )


def _pretrained(run, models):
    """Return line -> the changes that train a named model as published."""
    return {
        line: _difference(
            run, pretrain.get_config(f"{model},{run.data.dataset}")
        )
        for line, model in models.items()
    }


def _of_defaults(run, model):
    """Return the same training of another small model."""
    architecture = experiment.Architecture()
    return fields.changed(
        run, {"model.name": model, "model.architecture": architecture}
    )


def _scaled(factor, *names):
    return {f"model.architecture.{name}": Times(factor) for name in names}


def _difference(run, other):
    """Return the changes that turn a config into another, trained alike."""
    return {
        path: value
        for path, value in fields.difference(run, other).items()
        if not path.startswith("evaluation.fewshot")
    }


def _folder(line):
    return line.replace(", ", "_").replace("/", "").replace(" ", "_")
