"""Checkpoints of a few kilobytes, written without the libraries they are of."""

import json

import numpy as np

WIDTH, HEADS, LAYERS, MLP, PATCH, GRID, CLASSES = 12, 3, 2, 20, 2, 3, 5
SIDE = PATCH * GRID


def arrays(shapes: dict, seed: int = 0) -> dict:
    """Returns an array of small numbers for each shape."""
    rng = np.random.default_rng(seed)
    return {
        name: (0.3 * rng.normal(size=shape)).astype("float32")
        for name, shape in shapes.items()
    }


def authors() -> dict:
    """Returns the arrays of an authors' npz file."""
    d, head = WIDTH, (HEADS, WIDTH // HEADS)
    shapes = {
        "cls": (1, 1, d),
        "embedding/kernel": (PATCH, PATCH, 3, d),
        "embedding/bias": (d,),
        "Transformer/posembed_input/pos_embedding": (1, GRID**2 + 1, d),
        "Transformer/encoder_norm/scale": (d,),
        "Transformer/encoder_norm/bias": (d,),
        "head/kernel": (d, CLASSES),
        "head/bias": (CLASSES,),
    }
    for i in range(LAYERS):
        block = f"Transformer/encoderblock_{i}/"
        attention = f"{block}MultiHeadDotProductAttention_0/"
        for part in ("query", "key", "value"):
            shapes[f"{attention}{part}/kernel"] = (d, *head)
            shapes[f"{attention}{part}/bias"] = head
        shapes |= {
            f"{attention}out/kernel": (*head, d),
            f"{attention}out/bias": (d,),
            f"{block}MlpBlock_0/Dense_0/kernel": (d, MLP),
            f"{block}MlpBlock_0/Dense_0/bias": (MLP,),
            f"{block}MlpBlock_0/Dense_1/kernel": (MLP, d),
            f"{block}MlpBlock_0/Dense_1/bias": (d,),
        }
        for norm in ("LayerNorm_0", "LayerNorm_1"):
            shapes[f"{block}{norm}/scale"] = (d,)
            shapes[f"{block}{norm}/bias"] = (d,)
    return arrays(shapes)


def timm(class_token: bool = True) -> tuple[dict, dict]:
    """Returns the state dict and the config.json of timm's class."""
    d = WIDTH
    layers = {
        "patch_embed.proj": (d, 3, PATCH, PATCH),
        "norm": (d,),
        "head": (CLASSES, d),
    }
    for i in range(LAYERS):
        layers |= {
            f"blocks.{i}.norm1": (d,),
            f"blocks.{i}.attn.qkv": (3 * d, d),
            f"blocks.{i}.attn.proj": (d, d),
            f"blocks.{i}.norm2": (d,),
            f"blocks.{i}.mlp.fc1": (MLP, d),
            f"blocks.{i}.mlp.fc2": (d, MLP),
        }
    shapes = _with_biases(layers)
    shapes["pos_embed"] = (1, GRID**2 + class_token, d)
    if class_token:
        shapes["cls_token"] = (1, 1, d)
    config = dict(
        architecture="vit_base_patch16_224",
        num_classes=CLASSES,
        num_features=d,
        global_pool="token" if class_token else "avg",
        model_args=dict(
            img_size=SIDE,
            patch_size=PATCH,
            embed_dim=d,
            depth=LAYERS,
            num_heads=HEADS,
            mlp_ratio=MLP / d,
            num_classes=CLASSES,
            class_token=class_token,
        ),
        pretrained_cfg=dict(
            input_size=[3, SIDE, SIDE], mean=[0.5] * 3, std=[0.25] * 3
        ),
    )
    return arrays(shapes), config


def huggingface() -> tuple[dict, dict, dict]:
    """Returns arrays, config.json and preprocessor_config.json of ViT there."""
    d = WIDTH
    embeddings = "vit.embeddings."
    layers = {
        f"{embeddings}patch_embeddings.projection": (d, 3, PATCH, PATCH),
        "vit.layernorm": (d,),
        "classifier": (CLASSES, d),
    }
    for i in range(LAYERS):
        block = f"vit.encoder.layer.{i}."
        layers |= {
            f"{block}layernorm_before": (d,),
            f"{block}attention.attention.query": (d, d),
            f"{block}attention.attention.key": (d, d),
            f"{block}attention.attention.value": (d, d),
            f"{block}attention.output.dense": (d, d),
            f"{block}layernorm_after": (d,),
            f"{block}intermediate.dense": (MLP, d),
            f"{block}output.dense": (d, MLP),
        }
    shapes = _with_biases(layers)
    shapes[f"{embeddings}cls_token"] = (1, 1, d)
    shapes[f"{embeddings}position_embeddings"] = (1, GRID**2 + 1, d)
    config = dict(
        model_type="vit",
        hidden_size=d,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=MLP,
        hidden_act="gelu",
        layer_norm_eps=1e-5,
        image_size=SIDE,
        patch_size=PATCH,
        num_channels=3,
        id2label={str(i): f"class {i}" for i in range(CLASSES)},
    )
    processor = dict(
        image_processor_type="ViTImageProcessor",
        do_rescale=True,
        rescale_factor=1 / 255,
        do_normalize=True,
        image_mean=[0.5] * 3,
        image_std=[0.25] * 3,
    )
    return arrays(shapes), config, processor


def _with_biases(layers):
    shapes = {}
    for name, shape in layers.items():
        shapes[f"{name}.weight"] = shape
        shapes[f"{name}.bias"] = shape[:1]
    return shapes


def write(folder, values: dict, config=None, processor=None):
    """Writes a directory of safetensors and configs; returns it."""
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    save_file(values, folder / "model.safetensors")
    for name, content in (
        ("config.json", config),
        ("preprocessor_config.json", processor),
    ):
        if content is not None:
            (folder / name).write_text(json.dumps(content))
    return folder
