"""CIFAR-10 from scratch.

cifar10.py:DATASET             a ViT, in half an hour of one core
cifar10.py:DATASET,stem        a hybrid, in the same time
cifar10.py:DATASET,200_epochs  ViT-Lite-7/4, for a GPU or TPU

DATASET is cifar10 (of TFDS), or a folder of images or an npz file of 32 pixels
per side. The first two are fastest with PyTorch; docs/recipes/cifar10.md says
how they were found.

ViT-Lite: Hassani et al. 2021, "Escaping the Big Data Paradigm with Compact
Transformers" (2104.05704), which reports 91.4 % after 200 epochs; they were not
run here. Its size, epochs, batches, rate and decay are from memory; the authors
use AutoAugment, for which Keras' RandAugment stands here.
"""

from recipes import experiment

# Of what Muon leaves to AdamW.
_ADAMW = "adam_beta_2=0.95,adam_weight_decay=0.05,exclude_layers=['head']"


def get_config(arguments: str = "") -> experiment.Config:
    """Return the config of "DATASET" or "DATASET,KIND"."""
    dataset, _, kind = arguments.partition(",")
    kinds = {"": _patches, "stem": _stem, "200_epochs": _vit_lite}
    if not dataset or kind not in kinds:
        raise ValueError(
            "The argument of cifar10.py must be DATASET, DATASET,stem or "
            f"DATASET,200_epochs. Received: {arguments!r}"
        )
    return kinds[kind](dataset)


def _config(dataset, model, schedule, optim, every=0, **data):
    return experiment.Config(
        model=model,
        data=experiment.Data(
            dataset=dataset,
            image_size=(32,),
            crop="pad",
            flip=True,
            cache=True,
            **data,
        ),
        schedule=schedule,
        optim=optim,
        evaluation=experiment.Evaluation(every=every),
    )


def _patches(dataset):
    # Muon takes the matrices of the blocks, AdamW all else.
    return _half_hour(
        dataset,
        f"Muon(adam_lr_ratio=0.45,{_ADAMW})",
        3_400,
        patch_size=4,
        num_layers=4,
        embedding_init="whitening",
    )


def _stem(dataset):
    # A wide stem pays more than further blocks. AdamW is faster here, since it
    # has to raise a GroupNorm from zero before the unit has a branch.
    return _half_hour(
        dataset,
        f"keras_vit.training:ConvMuon(adam_lr_ratio=2.0,{_ADAMW},"
        "exclude_embeddings=False)",
        3_000,
        pad=2,
        patch_size=1,
        num_layers=2,
        resnet_depths=(1,),
        resnet_width=2,
    )


def _half_hour(dataset, optimizer, total_steps, pad=0, **architecture):
    model = experiment.Model(
        name="ViT",
        architecture=experiment.Architecture(
            hidden_size=128,
            num_heads=4,
            mlp_dim=256,
            pooling="gap",
            position_embedding="local",
            **architecture,
        ),
    )
    return _config(
        dataset,
        model,
        experiment.Schedule(
            total_steps=total_steps, warmup_steps=200, name="linear"
        ),
        experiment.Optim(
            name=optimizer, base_lr=0.0045, clip_norm=1.0, label_smoothing=0.1
        ),
        every=total_steps // 2,
        batch_size=64,
        pad=pad,
    )


def _vit_lite(dataset):
    model = experiment.Model(
        name="ViT",
        architecture=experiment.Architecture(
            patch_size=4,
            hidden_size=256,
            num_layers=7,
            num_heads=4,
            mlp_dim=512,
            drop_path_rate=0.1,
        ),
        dtype_policy="mixed_bfloat16",
    )
    return _config(
        dataset,
        model,
        experiment.Schedule(num_epochs=200, warmup_steps=3_900),
        experiment.Optim(
            name="AdamW",
            base_lr=5e-4,
            weight_decay=0.06,
            clip_norm=0.0,
            label_smoothing=0.1,
        ),
        batch_size=128,
        augment=(
            "RandAugment(num_ops=2,factor=0.45)",
            "MixUp(alpha=0.8)",
            "CutMix(factor=1.0)",
        ),
    )
