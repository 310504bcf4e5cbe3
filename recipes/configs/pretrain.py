"""Pre-training, as in Table 3 of the paper.

pretrain.py                          digits, for a look
pretrain.py:ViTB16,DATASET           a row of the table
pretrain.py:BiTR50x1,jft300m         a ResNet of the table, with Adam
pretrain.py:BiTR50x1,jft300m,sgd     the same with SGD, as in Table 7
pretrain.py:BiTR50x1,imagenet21k     BiT's own, on imagenet2012 too
pretrain.py:MixerB16,imagenet2012    MLP-Mixer's own
pretrain.py:RaftMLPS,imagenet2012    RaftMLP's own
pretrain.py:RaftMLP,cifar10,short    a small model on small photographs, from
                                     scratch; MLPMixer, ViT and BiT too

DATASET is "imagenet2012" (of TFDS), "imagenet21k", "jft300m", or another name
of TFDS, folder of images or npz file, which is trained like ImageNet. Where
the images of imagenet21k and jft300m are, --config.dataset says.
"""

import fnmatch

import keras_vit
from keras_vit.models import bit, families, mixer, raft_mlp, vit
from recipes import experiment

# Model, data set: epochs, base learning rate, decay, weight decay, dropout.
# Where the table has two numbers of epochs, the larger. The caption: batch
# 4096, 10k steps of warm-up, 224 pixels, and on ImageNet gradients clipped at
# a global norm of 1.
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
    ("ViTB16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("ViTB32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("ViTL16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("ViTL32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    # Not in the table: hybrids on ImageNet-21k, as their ViT counterparts.
    ("R50ViTB16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("R50ViTB32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("R50ViTL16", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("R50ViTL32", "imagenet21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("*", "imagenet2012", 300, 3e-3, "cosine", 0.3, 0.1),
)
# Images with several labels: the paper's loss is a sigmoid for each class.
MULTI_LABEL = ("imagenet21k", "jft300m")


def get_config(arguments: str = "ViT,digits") -> experiment.Config:
    """Returns the config of "MODEL,DATASET", with ",sgd" or ",short"."""
    model, comma, dataset = arguments.partition(",")
    dataset, *kind = dataset.split(",")
    if not (model and comma and dataset) or kind not in (
        [],
        ["sgd"],
        ["short"],
    ):
        raise ValueError(
            "The argument of pretrain.py must be MODEL,DATASET, such as "
            "ViTB16,imagenet2012, or for Table 7 MODEL,DATASET,sgd, or for a "
            "small model on small photographs MODEL,DATASET,short. Received: "
            f"{arguments!r}"
        )
    sgd = kind == ["sgd"]
    if sgd and (model not in bit.VARIANTS or dataset != "jft300m"):
        raise ValueError(
            "MODEL,DATASET,sgd must be a BiT ResNet on jft300m, as in Table 7. "
            f"Received: {arguments!r}"
        )
    titles = [family.title for family in families.FAMILIES.values()]
    if kind == ["short"]:
        if model not in titles:
            raise ValueError(
                f"MODEL,DATASET,short must be of {titles}. Received: {model!r}"
            )
        return _short(model, dataset)
    if model in titles:
        return _for_a_look(model, dataset)
    if model in mixer.VARIANTS and dataset not in MULTI_LABEL:
        return _mixer(model, dataset)
    if model in raft_mlp.VARIANTS and dataset not in MULTI_LABEL:
        return _raft_mlp(model, dataset)
    if model in bit.VARIANTS and (sgd or dataset != "jft300m"):
        return _sgd(model, dataset)
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
    architecture = _post_activation()
    if model in vit.VARIANTS:
        architecture = experiment.Architecture(
            dropout_rate=dropout,
            # Section 3.1: one hidden layer before the head at pre-training.
            representation_size=vit.VARIANTS[model]["hidden_size"],
        )
    return _published(
        model,
        dataset,
        architecture=architecture,
        num_epochs=epochs,
        warmup_steps=10_000,
        base_lr=base_lr,
        schedule=schedule,
        optimizer="adam",
        weight_decay=weight_decay,
        clip_norm=0.0 if multi_label else 1.0,
    )


def _post_activation():
    """The ResNets of the ViT paper are those of its own code."""
    return experiment.Architecture(
        activation_order="post_activation", numerics="authors"
    )


def _published(model, dataset, **fields):
    """What all published pre-training has in common."""
    multi_label = dataset in MULTI_LABEL
    common = dict(
        model=model,
        dataset=dataset,
        image_size=(224,),
        crop="inception",
        flip=True,
        batch_size=4096,
        loss="sigmoid" if multi_label else "softmax",
        head_bias=-10.0 if multi_label else 0.0,
        checkpoint_every=5_000,
        eval_every=5_000,
        dtype_policy="mixed_bfloat16",
    )
    return experiment.Config(**common | fields)


def _mixer(model, dataset):
    """Mixer-B/16 on ImageNet-1k, as big_vision's configs/mlp_mixer_i1k.py."""
    return _published(
        model,
        dataset,
        architecture=experiment.Architecture(drop_path_rate=0.1),
        augment=(
            "RandAugment(num_ops=2, factor=0.45)",  # magnitude 15
            "MixUp(alpha=0.5)",
        ),
        num_epochs=300,
        warmup_steps=10_000,
        base_lr=1e-3,
        schedule="linear",
        optimizer="adam",
        # 1e-4, and not times the learning rate, there.
        weight_decay=0.1,
        clip_norm=1.0,
        loss="sigmoid",
        head_bias=-6.9,
    )


def _raft_mlp(model, dataset):
    """RaftMLP on ImageNet-1k, as the authors' configs/settings.

    Their MixUp and CutMix mix whole batches, and CutMix draws its area from
    Beta(1, 1); Keras draws for each image. Their jitter multiplies brightness,
    Keras' adds to it.
    """
    return _published(
        model,
        dataset,
        architecture=experiment.Architecture(drop_path_rate=0.1),
        crop="resize",
        resize=256,
        eval_resize=256,
        augment=(
            "RandomColorJitter(brightness_factor=0.4, contrast_factor=0.4, "
            "saturation_factor=(0.375, 0.583))",  # times 0.6 to 1.4
            "RandAugment()",
            # Cutout: to what becomes zero, one image in four.
            "RandomErasing(factor=(0.25, 0.25), fill_value=127.5)",
            "MixUp(alpha=0.8)",
            "CutMix()",
        ),
        batch_size=2048,
        num_epochs=305,
        warmup_steps=5 * 1_281_167 // 2048,
        base_lr=2e-3,
        final_lr=1e-5,
        schedule="cosine",
        optimizer="adam",
        weight_decay=0.05,
        clip_norm=0.0,
        label_smoothing=0.1,
    )


def _short(model, dataset):
    """RaftMLP's training, shortened for some thousand photographs.

    AdamW, the cosine and label smoothing are the authors'; of augmentation
    flips and shifts remain, which a few epochs can use.
    """
    return experiment.Config(
        model=model,
        dataset=dataset,
        crop="pad",
        flip=True,
        batch_size=128,
        num_epochs=30,
        warmup_steps=300,
        base_lr=2e-3,
        final_lr=1e-5,
        schedule="cosine",
        optimizer="adam",
        weight_decay=0.05,
        clip_norm=1.0,
        label_smoothing=0.1,
    )


def _sgd(model, dataset):
    """BiT with SGD: big_vision's, and on JFT-300M that of the BiT paper."""
    fields = dict(
        num_epochs=90,
        warmup_steps=5_000,
        base_lr=0.03 * 4096 / 256,
        schedule="cosine",
        optimizer="sgd",
        momentum=0.9,
        # Times the learning rate. With a momentum of 0.9 the same as 1e-4 of
        # L2 regularisation, which momentum multiplies by 10.
        weight_decay=1e-3,
        clip_norm=0.0,
    )
    if dataset == "jft300m":
        # Table 7; BiT-L divides the rate at epochs 10, 23, 30 and 37 of 40.
        fields |= dict(
            architecture=_post_activation(),
            num_epochs=7,
            schedule="step",
            decay_at=(0.25, 0.575, 0.75, 0.925),
        )
    elif dataset not in MULTI_LABEL:
        fields |= dict(base_lr=0.1 * 4096 / 256, warmup_steps=1_000)
    return _published(model, dataset, **fields)


def _for_a_look(model, dataset):
    """The same kind of training for a small model, in a minute."""
    return experiment.Config(
        model=model,
        dataset=dataset,
        architecture=experiment.Architecture(
            dropout_rate=0.1 if model == "ViT" else 0.0
        ),
        crop="pad",
        batch_size=64,
        num_epochs=60,
        warmup_steps=200,
        base_lr=2e-3,
        schedule="linear",
        optimizer="adam",
        weight_decay=0.1,
        clip_norm=1.0,
        eval_every=100,
        # As the paper watches pre-training, section 4.1.
        fewshot_dataset="digits" if dataset == "digits" else "",
    )
