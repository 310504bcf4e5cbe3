"""ViT and its hybrids: names and sizes in every format.

`keras_files` reads the files of this package, including those written before
models contained their metadata.
"""

from keras_vit.weights.rules import (
    keras_format,
    mvit,
    patches,
    table,
    timm_config,
)
from keras_vit.weights.rules.encoder import formats
from keras_vit.weights.rules.vit import (
    huggingface,
    jax,
    keras_files,
    keras_hub,
    timm,
)
from keras_vit.weights.rules.vit.architecture import fields

TITLE = "ViT"
_POSITIONS = "posembed_input/pos_embedding"
# Example values, for the error message of an argument that must be given.
_REQUIRED = dict(
    num_heads="12 (ViT-B; also MoCo v3's ViT-S)",
    gelu_approximate="False (timm, transformers, keras-hub) or True (the "
    "authors, SigLIP)",
    layer_norm_epsilon="1e-6 (the authors, timm) or 1e-12 (transformers)",
    pooling="'gap', 'gap_norm' or 'unpooled'",
    resnet_numerics="'authors' or 'timm'",
)


def _required(metadata):
    if metadata.get("resnet_depths") is not None:
        return _REQUIRED
    return {k: v for k, v in _REQUIRED.items() if k != "resnet_numerics"}


def _positions_required(metadata):
    return dict(
        position_embedding="'sincos_2d' (big_vision, without an array of "
        "positions; any other file without one is damaged)"
    )


def grid(metadata: dict) -> tuple[int, int] | None:
    """Return the (rows, columns) of patches."""
    scale, patch = _stem_scale(metadata), metadata["patch_size"]
    sides = zip(metadata["image_size"], patches.pair(patch), strict=True)
    return tuple(-(-pixels // scale) // side for pixels, side in sides)


def _stem_scale(metadata):
    units = metadata.get("resnet_depths")
    return 1 if units is None else 2 ** (1 + max(1, len(units)))


RESIZES = {
    _POSITIONS: table.fit_positions,
    r"encoderblock_\d+/.*/relative_bias": table.fit_distances,
    "embedding/kernel": table.fit_pixels,
    "resnet/conv_root/kernel": table.fit_pixels,
}


def _refused(metadata, format):
    """List the parts of a model that another library does not have."""
    positions = metadata.get("position_embedding", "learned_1d")
    placement = metadata.get("position_placement", "stem")
    has = {
        f"position_embedding={positions!r}, which is not learned 1-D": (
            positions != "learned_1d"
            and (positions, format) != ("sincos_2d", "big_vision")
        ),
        f"position_placement={placement!r}": placement != "stem",
        "pooling='unpooled'": metadata["pooling"] == "unpooled",
    }
    return table.listed(has)


def _own_rules(metadata):
    """Return the table of our own files, in which names are paths."""
    paths = [rule.path for rule in jax.rules(metadata)]
    paths += keras_format.projection(metadata)
    return [table.Rule(path, (path,)) for path in paths]


def _format(module, rules_of=None, **kwargs):
    refused = kwargs.pop("refused", lambda metadata, format: [])
    rules_of = rules_of or module.rules

    def read_arrays(arrays, config, specified):
        parts = module.read_architecture(arrays, config)
        return _read_arrays(parts, rules_of(parts), arrays, specified)

    return table.Format(
        rules=rules_of,
        read_arrays=read_arrays,
        read_config=module.settings,
        flatten=module.flatten,
        refused=lambda metadata, format: (
            _refused(metadata, format) + refused(metadata, format)
        ),
        **{
            "required": _required,
            "check": patches.check_heads_and_grid,
            "resampling": lambda metadata: "aligned_bilinear",
            **kwargs,
        },
    )


def _read_arrays(parts, every, arrays, specified):
    """Infer metadata from names (`parts`) and the shapes of a few arrays."""
    shape_of = table.shapes(arrays, every)
    kernel = shape_of("embedding/kernel", 4)
    found = parts | dict(
        patch_size=kernel[:2],
        hidden_size=kernel[3],
        channels=kernel[2],
        num_heads=parts.get("num_heads") or specified.get("num_heads"),
        mlp_dim=shape_of("encoderblock_0/MlpBlock_0/Dense_0/kernel", 2)[1],
        resnet_depths=parts.get("resnet_depths"),
    )
    found |= table.read_top(arrays, every)
    if found["resnet_depths"] is not None:
        root = shape_of("resnet/conv_root/kernel", 4)
        found["channels"], found["resnet_width"] = root[2], root[3] / 64
    scale = _stem_scale(found)
    found["stride"] = tuple(scale * side for side in kernel[:2])
    if found["num_heads"] and found["hidden_size"] % found["num_heads"]:
        raise ValueError(
            "expected a number of heads that divides its width, "
            f"{found['hidden_size']}; found {found['num_heads']}"
        )
    rule = next(r for r in every if r.path == _POSITIONS)
    if rule.sources[0] in arrays:
        # The table of keras-hub has no batch axis.
        blank = table.blank((1, 1, 1))
        axes = len(rule.transform.split(blank)[0].shape)
        tokens = shape_of(_POSITIONS, axes)[1] - fields(parts)["class_token"]
        found["grid"] = patches.grid_of(tokens, found["stride"], specified)
        if not specified.keys() & {"grid", "image_size"}:
            found["patch_counts"] = specified.get("patch_counts", (tokens,))
    return found


_TIMM_RELATIVES = {
    r".*blocks\.\d+\.attn\.[qk]_norm\..*": "a timm ViT with norms of queries "
    "and keys: these are",
    r".*\.lambda_[qk]\d": "a timm ViT of differential attention: this is",
    r".*patch_embed\.norm\..*": "an AIMv2: a norm of patches is",
    r".*blocks\.\d+\.(attn|mlp)\.norm\..*": "a BEiT-3: norms within blocks are",
    r".*blocks\.\d+\.(attns\.\d|attn_out_proj|in_proj)\..*": "a timm ViT of "
    "parallel branches: these are",
    r".*patch_embed\.backbone\.(\d|conv1|layer1)\..*": "a stem of another "
    "network than ResNetV2 is",
    r".*blocks\.\d+\.attn\.pool_[qkv].*": "an MViTv2: relative positions are",
    r".*blocks_token_only\..*": "a timm CaiT: class attention is",
    r".*neck\.\d+\..*|.*blocks\.\d+\.attn\.rel_pos_[hw]": "an image encoder "
    "of SAM: decomposed relative positions are",
    r".*(dist_token|head_dist\..*)": "a distilled DeiT: a distillation token "
    "is",
    r".*(\.mlp\.fc1_g\..*|\.attn\.q_proj\..*|rope.*)": "a timm EVA-02: rotary "
    "positions are",
    r".*\.attn\.q_bias": "a timm EVA: keys without a bias are",
    r".*relative_position_bias_table": "a timm BEiT or Swin: tables of "
    "relative positions are",
    mvit.OWN_NAMES: "an MViT: pooling of tokens is",
    r"(layers|network)\.\d+\..*": "a pyramid, such as Swin: merged patches are",
    r".*blocks\.\d+\.(ls\d\.gamma|gamma_\d)": "a timm ViT with LayerScale "
    "(DeiT III, DINOv2): LayerScale is",
    r".*(reg_token|register_tokens)": "a timm ViT with registers: registers "
    "are",
    r".*attn_pool\..*": "a timm SigLIP: attention pooling is",
    r".*norm_pre\..*": "a timm CLIP: a norm before the blocks is",
    r".*blocks\.\d+\.mlp2\..*": "a feed-forward-only ViT: MLPs over tokens are",
    r".*\.mlp\.w12\..*": "a timm ViT with SwiGLU: SwiGLU is",
    r".*blocks\.\d+\.attn\.temperature": "a timm XCiT: cross-covariance "
    "attention is",
    r".*rel_pos\.mlp\..*": "a timm vit_relpos: MLPs of relative positions are",
    r".*attn\.qkv\.weight without bias": "projections without biases are",
    r".*decoder_(embed|blocks)\..*": "a masked autoencoder with its decoder: "
    "decoders are",
}
_TRANSFORMERS_RELATIVES = {
    r".*distillation_token|distillation_classifier\..*": "a distilled DeiT: a "
    "distillation token is",
    r".*lambda_\d|.*layer_scale\d\..*": "a transformers BEiT or DINOv2: "
    "LayerScale is",
    r".*register_tokens": "a transformers DINOv2 with registers: registers are",
    r".*relative_position_bias.*": "a transformers BEiT: relative positions "
    "are",
    r".*detection_tokens": "a YOLOS: detection tokens without "
    "a config.json are",
    r"decoder\.\d.*": "a ViTForMaskedImageModeling: decoders are",
}


# A separate family, whose other names are those of a ViT.
_AXIAL = {
    r"(Transformer/encoder_block_row|axial_block)_.*": "an Axial-ViT: blocks "
    "along columns and rows are"
}
_LATER = {
    r"register_tokens/.*|pre_norm/.*"
    r"|encoderblock_0/LayerScale_0/.*": "the weights of a later ViT without "
    "its architecture are"
}
FORMATS = {
    "jax": _format(
        jax,
        requires=(r".*Transformer/.*",),
        forbids=_AXIAL,
        required=_positions_required,
        check=lambda found, wanted: None,  # its shapes show the heads
        restore=jax.restore,
        naming_schemes=jax.NAMING_SCHEMES,
        refused=jax.refused,
        differences=jax.differences,
    ),
    "timm": _format(
        timm,
        # Other families embed patches under the same name.
        requires=(
            r".*patch_embed\.(proj|backbone\.0\.conv)\.weight",
            r".*blocks\.\d+\.(norm1|attns\.0\.norm)\.weight",
        ),
        forbids=_TIMM_RELATIVES,
        resampling=timm_config.resampling,
        restore=timm.restore,
        naming_schemes={"timm": False},
        config_of=timm.config_of,
        refused=timm.refused,
        differences=timm.differences,
    ),
    "huggingface": _format(
        huggingface,
        requires=(r".*embeddings\.patch_embeddings\.projection\.weight",),
        forbids=_TRANSFORMERS_RELATIVES,
        resampling=lambda metadata: "bicubic",
        restore=huggingface.restore,
        naming_schemes={
            "huggingface": lambda metadata: metadata["classes"] is not None
        },
        config_of=huggingface.config_of,
        refused=huggingface.refused,
    ),
    "keras_hub": _format(
        keras_hub, requires=(r"vit_patching_and_embedding/patch_embedding/0",)
    ),
    "keras_vit": _format(
        keras_files,
        rules_of=_own_rules,
        requires=("embedding/0", "encoder_norm/0"),
        forbids=_AXIAL | _LATER,
    ),
}
