"""Pre-training, as in Table 3 of the paper.

pretrain.py                          digits, for a quick try
pretrain.py:ViTB16,DATASET           a row of the table
pretrain.py:BiTR50x1,jft300m         a ResNet of the table, with Adam
pretrain.py:AxialViTB16,jft300m      an axial model of Figure 13
pretrain.py:ViTg14,jft3b             "Scaling Vision Transformers"; any ViT
pretrain.py:BiTR50x1,jft300m,sgd     the same with SGD, as in Table 7
pretrain.py:BiTR50x1,imagenet21k     as in the BiT paper; also on imagenet2012
pretrain.py:MixerB16,imagenet2012    as in the MLP-Mixer paper
pretrain.py:RaftMLPS,imagenet2012    as in the RaftMLP paper
pretrain.py:ASMLPT,imagenet2012      DeiT's protocol, as each family changes it:
                                     AS-MLP, ConvMLP, Hire-MLP, gMLP, ResMLP,
                                     MViTB16 and others
pretrain.py:ViTS16,imagenet2012,plain  90 epochs, better than Table 3
pretrain.py:RaftMLP,cifar10,short    a small model on small photographs, from
                                     scratch; also MLPMixer, ViT and BiT

DATASET is "imagenet2012" (from TFDS), "imagenet21k", "jft300m" or "jft3b".
Another name of TFDS, a folder of images or an npz file is trained like
ImageNet. --config.data.dataset gives the path of the images of imagenet21k,
jft300m and jft3b.
"""

import fnmatch

import keras_vit
from keras_vit.models import axial_vit, bit, families, vit
from recipes import experiment, fields

# Model, data set: epochs, base learning rate, decay, weight decay, dropout.
# Where the table gives two numbers of epochs, this is the larger. From the
# caption: batch size 4096, 10k steps of warm-up, 224 pixels, and on ImageNet
# gradients clipped at a global norm of 1.
TABLE_3 = (
    ("ViTB16", "jft300m", 7, 8e-4, "linear", 0.1, 0.0),
    ("ViTB32", "jft300m", 7, 8e-4, "linear", 0.1, 0.0),
    ("ViTL32", "jft300m", 7, 6e-4, "linear", 0.1, 0.0),
    ("ViTL16", "jft300m", 14, 4e-4, "linear", 0.1, 0.0),
    ("ViTH14", "jft300m", 14, 3e-4, "linear", 0.1, 0.0),
    ("BiTR50x1", "jft300m", 7, 1e-3, "linear", 0.1, 0.0),
    ("BiTR50x2", "jft300m", 7, 1e-3, "linear", 0.1, 0.0),
    ("BiTR101x1", "jft300m", 7, 8e-4, "linear", 0.1, 0.0),
    ("BiTR152x1", "jft300m", 7, 6e-4, "linear", 0.1, 0.0),
    ("BiTR152x2", "jft300m", 7, 6e-4, "linear", 0.1, 0.0),
    ("R50ViTB16", "jft300m", 7, 8e-4, "linear", 0.1, 0.0),
    ("R50ViTB32", "jft300m", 7, 8e-4, "linear", 0.1, 0.0),
    ("R50ViTL32", "jft300m", 7, 2e-4, "linear", 0.1, 0.0),
    ("R50ViTL16", "jft300m", 14, 4e-4, "linear", 0.1, 0.0),
    # Not in the table: a ResNet of Table 6, with the rate of the next smaller,
    # and the axial models of Figure 13, trained as the models without axes.
    ("BiTR200x3", "jft300m", 14, 6e-4, "linear", 0.1, 0.0),
    ("AxialResNet50", "jft300m", 7, 1e-3, "linear", 0.1, 0.0),
    ("AxialViTB32", "jft300m", 7, 8e-4, "linear", 0.1, 0.0),
    ("AxialViTB16", "jft300m", 7, 8e-4, "linear", 0.1, 0.0),
    ("ViTB16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("ViTB32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("ViTL16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("ViTL32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    # Not in the table: ViT-H/14 of Table 5 and hybrids on ImageNet-21k, trained
    # as the other ViTs.
    ("ViTH14", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("R50ViTB16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("R50ViTB32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("R50ViTL16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("R50ViTL32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("*", "imagenet2012", 300, 3e-3, "cosine", 0.3, 0.1),
)
# Data sets with several labels per image: the loss is a sigmoid per class.
MULTI_LABEL = ("imagenet21k", "jft300m", "jft3b")

# Times 0.6 to 1.4; Keras adds to brightness.
COLOUR_JITTER = (
    "RandomColorJitter(brightness_factor=0.4, contrast_factor=0.4, "
    "saturation_factor=(0.375, 0.583))"
)

# Families that train as DeiT does, and what they change.
DEIT: dict[str, dict] = {
    "as_mlp": {"warmup_epochs": 20, "optim.clip_norm": 5.0},  # Swin's
    "conv_mlp": {"optim.base_lr": 5e-4, "optim.ema_momentum": 0.99996},
    "cycle_mlp": {},
    "deit": {},
    "eamlp": {"optim.base_lr": 5e-4, "schedule.num_epochs": 310},  # T2T-ViT's
    "ff_only": {},
    "gmlp": {"data.batch_size": 4096, "warmup_epochs": 32},  # 10,000 steps
    "hire_mlp": {},
    # configs/ImageNet/MVIT_B_16_CONV.yaml, of eight machines. A warm-up is at
    # most a fifth of all steps, 60 epochs of the authors' 70.
    "mvit": {
        "data.batch_size": 2048,
        "warmup_epochs": 70,
        "optim.base_lr": 2e-3,
        "optim.clip_norm": 1.0,
        "schedule.final_lr": 1e-6,
        "data.augment": (
            COLOUR_JITTER,
            "RandAugment(num_ops=6, factor=0.27)",
            "RandomErasing(factor=(0.25, 0.25))",
            "MixUp(alpha=0.8)",
            "CutMix()",
        ),
    },
    "res_mlp": {
        "optim.name": "lamb",
        "optim.base_lr": 5e-3,
        "optim.weight_decay": 0.2,
        "schedule.num_epochs": 400,
        "data.batch_size": 2048,
    },
}
# Stochastic depth where it is not DeiT's 0.1.
DROP_PATH = {
    "ASMLPT": 0.2,
    "ASMLPS": 0.3,
    "ASMLPB": 0.5,
    "GMLPTi16": 0.0,
    "GMLPS16": 0.05,
    "GMLPB16": 0.2,
    # "0.1 to 0.5, by size": those between are our choice.
    "ResMLPS24": 0.2,
    "ResMLPS36": 0.3,
    "ResMLPB24": 0.5,
}


def get_config(arguments: str = "ViT,digits") -> experiment.Config:
    """Return the config of "MODEL,DATASET", with ",sgd", ",short", ",plain"."""
    model, _, rest = arguments.partition(",")
    dataset, comma, kind = rest.partition(",")
    known = not comma or kind in ("sgd", "short", "plain")
    if not (model and dataset and known):
        raise ValueError(
            "The argument of pretrain.py must be MODEL,DATASET, such as "
            "ViTB16,imagenet2012, or for Table 7 MODEL,DATASET,sgd, or for a "
            "small model on small photographs MODEL,DATASET,short, or for a "
            "ViT in 90 epochs MODEL,DATASET,plain. Received: "
            f"{arguments!r}"
        )
    if kind == "sgd" and (model not in bit.VARIANTS or dataset != "jft300m"):
        raise ValueError(
            "MODEL,DATASET,sgd must be a BiT ResNet on jft300m, as in Table 7. "
            f"Received: {arguments!r}"
        )
    if kind == "plain":
        return _plain(model, dataset)
    titles = [family.title for family in families.FAMILIES.values()]
    if kind == "short":
        if model not in titles:
            raise ValueError(
                f"MODEL,DATASET,short must be of {titles}. Received: {model!r}"
            )
        return _short(model, dataset)
    if model in titles:
        return _for_a_look(model, dataset)
    if dataset == "jft3b":
        return _scaling(model)
    family = families.of(model)
    if family and dataset not in MULTI_LABEL:
        if family.name == "mixer":
            return _mixer(model, dataset)
        if family.name == "raft_mlp":
            return _raft_mlp(model, dataset)
        if family.name in DEIT:
            return _deit(model, dataset, DEIT[family.name])
    if model in bit.VARIANTS and (kind == "sgd" or dataset != "jft300m"):
        return _sgd(model, dataset)
    return _table_3(model, dataset)


def _table_3(model, dataset):
    """Return the training of a row of the paper's Table 3."""
    known = dataset if dataset in MULTI_LABEL else "imagenet2012"
    rows = [
        row[2:]
        for row in TABLE_3
        if fnmatch.fnmatch(model, row[0]) and row[1] == known
    ]
    if not rows or model not in keras_vit.list_models():
        raise ValueError(
            f"MODEL must be one that Table 3 trains on {dataset}: "
            f"{[row[0] for row in TABLE_3 if row[1] == dataset]}. "
            f"Received: {model!r}"
        )
    epochs, base_lr, schedule, weight_decay, dropout = rows[0]
    multi_label = dataset in MULTI_LABEL
    architecture = experiment.Architecture()
    transformers = vit.VARIANTS | axial_vit.VARIANTS
    if model in bit.VARIANTS:
        architecture = _post_activation()
    elif model in transformers:
        architecture = experiment.Architecture(
            dropout_rate=dropout,
            # Section 3.1: one hidden layer before the head at pre-training.
            representation_size=transformers[model]["hidden_size"],
        )
    return _published(
        model,
        dataset,
        {
            "model.architecture": architecture,
            "schedule.num_epochs": epochs,
            "schedule.warmup_steps": 10_000,
            "optim.base_lr": base_lr,
            "schedule.name": schedule,
            "optim.name": "adam",
            "optim.weight_decay": weight_decay,
            "optim.clip_norm": 0.0 if multi_label else 1.0,
        },
    )


def _post_activation():
    """Return the ResNet architecture that the ViT paper's code uses."""
    return experiment.Architecture(
        activation_order="post_activation", numerics="authors"
    )


def _published(model, dataset, changes):
    """Return the settings that all published pre-training shares."""
    multi_label = dataset in MULTI_LABEL
    common = {
        "model.name": model,
        "data.dataset": dataset,
        "data.image_size": (224,),
        "data.crop": "inception",
        "data.flip": experiment.may_flip(dataset),
        "data.batch_size": 4096,
        "optim.loss": "sigmoid" if multi_label else "softmax",
        "model.head_bias": -10.0 if multi_label else 0.0,
        "run.checkpoint_every": 5_000,
        "evaluation.every": 5_000,
        "model.dtype_policy": "mixed_bfloat16",
    }
    return fields.changed(experiment.Config(), common | changes)


def _plain(model, dataset):
    """Return "Better plain ViT baselines for ImageNet-1k" (2205.01580).

    As in big_vision's configs/vit_s16_i1k.py.
    """
    if model not in vit.VARIANTS or dataset in MULTI_LABEL:
        raise ValueError(
            "MODEL,DATASET,plain must be a ViT and images with one label each, "
            f"such as ViTS16,imagenet2012,plain. Received: {model},{dataset}"
        )
    return _published(
        model,
        dataset,
        {
            "model.architecture": experiment.Architecture(
                pooling="gap",
                position_embedding="sincos_2d",
                representation_size=vit.VARIANTS[model]["hidden_size"],
            ),
            "data.augment": (
                "RandAugment(num_ops=2, factor=0.3)",  # magnitude 10
                "MixUp(alpha=0.2)",
            ),
            "data.eval_resize": 256,
            "data.batch_size": 1024,
            "schedule.num_epochs": 90,
            "schedule.warmup_steps": 10_000,
            "optim.base_lr": 1e-3,
            "schedule.name": "cosine",
            "optim.name": "adam",
            # There 1e-4, not multiplied by the learning rate.
            "optim.weight_decay": 0.1,
            "optim.clip_norm": 1.0,
        },
    )


def _scaling(model):
    """Return "Scaling Vision Transformers" (2106.04560), Table 2's models.

    As in big_vision's configs/proj/scaling_laws/train_vit_g.py. Every model
    reads the tokens by attention from a probe.
    """
    if model not in vit.VARIANTS or "resnet_depths" in vit.VARIANTS[model]:
        raise ValueError(
            "MODEL,jft3b must be a ViT without a ResNet, such as ViTg14,jft3b. "
            f"Received: {model!r}"
        )
    schedule = "InverseSquareRoot(cooldown_steps=50000)"
    return _published(
        model,
        "jft3b",
        {
            "model.architecture": experiment.Architecture(pooling="map"),
            "data.eval_resize": 256,
            "data.batch_size": 16_384,
            "schedule.total_steps": 1_000_000,
            "schedule.warmup_steps": 10_000,
            "schedule.name": f"keras_vit.training:{schedule}",
            "optim.name": "keras_vit.training:MomentumAdafactor",
            "optim.base_lr": 8e-4,
            # There times 8e-4, and not multiplied by the learning rate.
            "optim.weight_decay": 0.03,
            "optim.head_weight_decay": 3.0,
            "optim.clip_norm": 1.0,
        },
    )


def _mixer(model, dataset):
    """Return Mixer-B/16's config of big_vision, configs/mlp_mixer_i1k.py."""
    return _published(
        model,
        dataset,
        {
            "model.architecture": experiment.Architecture(drop_path_rate=0.1),
            "data.augment": (
                "RandAugment(num_ops=2, factor=0.45)",  # magnitude 15
                "MixUp(alpha=0.5)",
            ),
            "schedule.num_epochs": 300,
            "schedule.warmup_steps": 10_000,
            "optim.base_lr": 1e-3,
            "schedule.name": "linear",
            "optim.name": "adam",
            # There 1e-4, not multiplied by the learning rate.
            "optim.weight_decay": 0.1,
            "optim.clip_norm": 1.0,
            "optim.loss": "sigmoid",
            "model.head_bias": -6.9,
        },
    )


def _raft_mlp(model, dataset):
    """Return the authors' configs/settings: RaftMLP on ImageNet-1k.

    Their MixUp and CutMix draw once per batch, and CutMix draws its area from
    Beta(1, 1); Keras draws for each image. Their jitter multiplies brightness;
    that of Keras adds to it.
    """
    return _published(
        model,
        dataset,
        {
            "model.architecture": experiment.Architecture(drop_path_rate=0.1),
            "data.crop": "resize",
            "data.resize": 256,
            "data.eval_resize": 256,
            "data.augment": (
                COLOUR_JITTER,
                "RandAugment()",
                # Cutout in one image of four; scaled, this value becomes zero.
                "RandomErasing(factor=(0.25, 0.25), fill_value=127.5)",
                "MixUp(alpha=0.8)",
                "CutMix()",
            ),
            "data.batch_size": 2048,
            "schedule.num_epochs": 305,
            "schedule.warmup_steps": 5 * 1_281_167 // 2048,
            "optim.base_lr": 2e-3,
            "schedule.final_lr": 1e-5,
            "schedule.name": "cosine",
            "optim.name": "adam",
            "optim.weight_decay": 0.05,
            "optim.clip_norm": 0.0,
            "optim.label_smoothing": 0.1,
        },
    )


def _deit(model, dataset, of_family):
    """Return DeiT's protocol (2012.12877, Table 9), as a family changes it.

    DeiT applies either MixUp or CutMix to a batch, and draws the strength of
    RandAugment around 9 of 10; here both are applied, and strengths lie between
    0 and 9. An image is once in a batch, there three times.
    """
    changes = dict(of_family)
    batch_size = changes.pop("data.batch_size", 1024)
    warmup_epochs = changes.pop("warmup_epochs", 5)
    common = {
        "model.architecture": experiment.Architecture(
            drop_path_rate=DROP_PATH.get(model, 0.1)
        ),
        "data.min_area": 0.08,
        "data.augment": (
            "RandAugment(num_ops=2, factor=0.27)",
            "RandomErasing(factor=(0.25, 0.25))",
            "MixUp(alpha=0.8)",
            "CutMix()",
        ),
        "data.batch_size": batch_size,
        "schedule.num_epochs": 300,
        "schedule.warmup_steps": warmup_epochs * 1_281_167 // batch_size,
        "optim.base_lr": 1e-3,
        "schedule.final_lr": 1e-5,
        "schedule.name": "cosine",
        "optim.name": "adam",
        "optim.weight_decay": 0.05,
        "optim.clip_norm": 0.0,
        "optim.label_smoothing": 0.1,
    }
    return _published(model, dataset, common | changes)


def _short(model, dataset):
    """Return RaftMLP's training, shortened for some thousand photographs.

    AdamW, the cosine schedule and label smoothing are the authors'. Of the
    augmentation only flips and shifts remain, which help within a few epochs.
    """
    return experiment.Config(
        model=experiment.Model(name=model),
        data=experiment.Data(
            dataset=dataset,
            crop="pad",
            flip=experiment.may_flip(dataset),
            batch_size=128,
        ),
        schedule=experiment.Schedule(
            num_epochs=30, warmup_steps=300, final_lr=1e-5, name="cosine"
        ),
        optim=experiment.Optim(
            base_lr=2e-3,
            name="adam",
            weight_decay=0.05,
            clip_norm=1.0,
            label_smoothing=0.1,
        ),
    )


def _sgd(model, dataset):
    """Return BiT with SGD: as in big_vision; on JFT-300M as in its paper."""
    changes = {
        "schedule.num_epochs": 90,
        "schedule.warmup_steps": 5_000,
        "optim.base_lr": 0.03 * 4096 / 256,
        "schedule.name": "cosine",
        "optim.name": "sgd",
        "optim.momentum": 0.9,
        # Multiplied by the learning rate. With a momentum of 0.9 this equals
        # L2 regularisation of 1e-4, which momentum multiplies by 10.
        "optim.weight_decay": 1e-3,
        "optim.clip_norm": 0.0,
    }
    if dataset == "jft300m":
        # Table 7; BiT-L divides the rate at epochs 10, 23, 30 and 37 of 40.
        changes |= {
            "model.architecture": _post_activation(),
            "schedule.num_epochs": 7,
            "schedule.name": "step",
            "schedule.decay_at": (0.25, 0.575, 0.75, 0.925),
        }
    elif dataset not in MULTI_LABEL:
        changes |= {
            "optim.base_lr": 0.1 * 4096 / 256,
            "schedule.warmup_steps": 1_000,
        }
    return _published(model, dataset, changes)


def _for_a_look(model, dataset):
    """Return the same training for a small model, which takes a minute."""
    return experiment.Config(
        model=experiment.Model(
            name=model,
            architecture=experiment.Architecture(
                dropout_rate=0.1 if model == "ViT" else 0.0
            ),
        ),
        data=experiment.Data(dataset=dataset, crop="pad", batch_size=64),
        schedule=experiment.Schedule(
            num_epochs=60, warmup_steps=200, name="linear"
        ),
        optim=experiment.Optim(
            base_lr=2e-3, name="adam", weight_decay=0.1, clip_norm=1.0
        ),
        evaluation=experiment.Evaluation(
            every=100,
            # As the paper evaluates pre-training, section 4.1.
            fewshot_dataset="digits" if dataset == "digits" else "",
        ),
    )
