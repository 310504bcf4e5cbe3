"""Two towers: images and sentences about them.

contrastive.py                    digits and sentences, two minutes on two cores
contrastive.py:clip,DATASET       ViT-B/32 from scratch, as in CLIP's paper
contrastive.py:siglip,DATASET     ViT-B/16 from scratch, as in SigLIP's
contrastive.py:lit,DATASET        a text tower for a frozen ViT-B/16, as in LiT

DATASET is a CSV file, or a folder of them or of TFRecords
(`keras_vit.data.pairs`), or a name of TensorFlow Datasets such as
coco_captions. `--config.text.tokenizer` is a folder with a tokenizer's files.
"""

from recipes import contrastive, experiment


def get_config(arguments: str = "") -> contrastive.Config:
    """Return the config of "METHOD,DATASET"; without them, the quick try."""
    if not arguments:
        return _digits()
    method, comma, dataset = arguments.partition(",")
    methods = dict(clip=_clip, siglip=_siglip, lit=_lit)
    if method not in methods or not dataset:
        raise ValueError(
            f"The argument of contrastive.py must be one of {list(methods)}, a "
            f"comma and a data set. Received: {arguments!r}"
        )
    return methods[method](dataset)


def _digits():
    return contrastive.Config(
        model=experiment.Model(
            architecture=experiment.Architecture(
                patch_size=1,
                hidden_size=64,
                num_layers=2,
                num_heads=4,
                mlp_dim=128,
                resnet_depths=(1,),
                resnet_width=0.5,
            ),
        ),
        data=experiment.Data(
            dataset="digit_sentences",
            image_size=(16,),
            crop="pad",
            batch_size=64,
        ),
        schedule=experiment.Schedule(total_steps=1200, warmup_steps=100),
        optim=experiment.Optim(
            name="AdamW", base_lr=0.001, weight_decay=0.01, clip_norm=1.0
        ),
        evaluation=experiment.Evaluation(every=300),
    )


# ViT-B's text tower of CLIP, and the larger vocabulary's of SigLIP.
_TEXT: dict = dict(hidden_size=512, num_layers=12, num_heads=8, mlp_dim=2048)
_BASE: dict = dict(hidden_size=768, num_layers=12, num_heads=12, mlp_dim=3072)


def _clip(dataset):
    """Radford et al. 2021, tables 18 and 20: 400 million pairs, 32 epochs."""
    return contrastive.Config(
        model=experiment.Model(name="CLIPB32", dtype_policy="mixed_bfloat16"),
        data=experiment.Data(
            dataset=dataset,
            image_size=(224,),
            crop="inception",
            # As OpenCLIP; the authors crop resized images at random.
            min_area=0.9,
            batch_size=32_768,
        ),
        text=contrastive.Text(
            kind="clip",
            vocab_size=49_408,
            context_length=77,
            embedding_size=512,
            **_TEXT,
        ),
        schedule=experiment.Schedule(num_epochs=32, warmup_steps=2000),
        optim=experiment.Optim(
            name="AdamW(beta_1=0.9, beta_2=0.98, epsilon=1e-6)",
            base_lr=5e-4,
            weight_decay=0.2,
            clip_norm=0.0,
        ),
        run=experiment.Run(checkpoint_every=5000),
        evaluation=experiment.Evaluation(every=5000),
    )


def _siglip(dataset):
    """Zhai et al. 2023, section 4: 9 billion pairs in batches of 32k."""
    return contrastive.Config(
        model=experiment.Model(name="SigLIPB16", dtype_policy="mixed_bfloat16"),
        data=experiment.Data(
            dataset=dataset,
            image_size=(224,),
            crop="none",
            batch_size=32_768,
        ),
        text=contrastive.Text(
            kind="siglip",
            loss="sigmoid",
            vocab_size=32_000,
            context_length=64,
            embedding_size=0,
            **_BASE,
        ),
        schedule=experiment.Schedule(
            total_steps=9_000_000_000 // 32_768, warmup_steps=6_500
        ),
        optim=experiment.Optim(
            name="AdamW(beta_1=0.9, beta_2=0.95)",
            base_lr=1e-3,
            weight_decay=1e-4,
            clip_norm=1.0,
        ),
        run=experiment.Run(checkpoint_every=5000),
        evaluation=experiment.Evaluation(every=5000),
    )


def _lit(dataset):
    """Zhai et al. 2022 (2111.07991), with the settings of their lit_coco.py."""
    config = _siglip(dataset)
    config.model = experiment.Model(
        name="ViTB16",
        weights="imagenet21k",
        tune="head",
        dtype_policy="mixed_bfloat16",
    )
    config.data.batch_size = 512
    config.text.loss, config.text.context_length = "softmax", 16
    config.schedule = experiment.Schedule(total_steps=5000, warmup_steps=150)
    config.optim = experiment.Optim(
        name="adam", base_lr=1e-3, weight_decay=0.01, clip_norm=1.0
    )
    config.run.checkpoint_every = config.evaluation.every = 1000
    return config
