"""Names and settings of timm's VisionTransformer, Eva and Beit.

A config of timm has the name of an architecture, and the arguments that differ
from it; other constants are only in timm's code. Taken from timm 1.0.31.
"""

import dataclasses
import re

import numpy as np

from keras_vit.weights.rules import configs, table, timm_config
from keras_vit.weights.rules.encoder import parallel
from keras_vit.weights.stored import Stored

NAMES = dict(
    embedding="patch_embed.proj",
    class_token="cls_token",
    registers="reg_token",
    positions="pos_embed",
    pre_norm="norm_pre",
    norm1="blocks.{i}.norm1",
    norm2="blocks.{i}.norm2",
    qkv="blocks.{i}.attn.qkv",
    q_bias="blocks.{i}.attn.q_bias",
    v_bias="blocks.{i}.attn.v_bias",
    q_norm="blocks.{i}.attn.q_norm",
    k_norm="blocks.{i}.attn.k_norm",
    attention_norm="blocks.{i}.attn.norm",
    relative="blocks.{i}.attn.relative_position_bias_table",
    relative_fc1="blocks.{i}.attn.rel_pos.mlp.fc1",
    relative_fc2="blocks.{i}.attn.rel_pos.mlp.fc2",
    frequencies="blocks.{i}.rope.freqs",
    out="blocks.{i}.attn.proj",
    scale1="blocks.{i}.ls1.gamma",
    scale2="blocks.{i}.ls2.gamma",
    # Where there is a gate, `flatten` names the other half.
    fc1="blocks.{i}.mlp.fc1",
    gate="blocks.{i}.mlp.fc1_g",
    mlp_norm="blocks.{i}.mlp.norm",
    fc2="blocks.{i}.mlp.fc2",
    norm="norm",
    fc_norm="fc_norm",
    probe="attn_pool.latent",
    pool_q="attn_pool.q",
    pool_kv="attn_pool.kv",
    pool_out="attn_pool.proj",
    pool_norm="attn_pool.norm",
    pool_fc1="attn_pool.mlp.fc1",
    pool_fc2="attn_pool.mlp.fc2",
    head="head",
)
# The names of LayerScale in timm's Eva and Beit.
EVA_NAMES = NAMES | dict(
    scale1="blocks.{i}.gamma_1", scale2="blocks.{i}.gamma_2"
)

_FC1 = re.compile(r"(blocks\.\d+\.mlp\.)fc1\.(weight|bias)")
_FC1_X = re.compile(r"(blocks\.\d+\.mlp\.)fc1_x\.(weight|bias)")
_Q_PROJ = re.compile(r"(blocks\.\d+\.attn\.)q_proj\.weight")
# Heads by width, of architectures whose heads are not 64 wide.
_HEADS = {
    64: 2,
    96: 3,
    2432: 32,
    1152: 16,
    1280: 16,
    1408: 16,
    1536: 16,
    1664: 16,
    1792: 16,
    4096: 32,
}
# Patterns of architectures whose GELU is another.
_TANH = re.compile(
    r"vit_base_patch32_siglip_(gap_)?256|vit_giantopt_patch16_siglip_.*"
    r"|vit_large_patch16_siglip_(gap_)?512|vit_so400m_patch16_siglip_.*"
)
POST_NORM = "False (nearly all) or True (timm's rpn)"
_ACTIVATIONS = ("gelu", "gelu_tanh", "quick_gelu", "silu")


def flatten(
    arrays: dict[str, Stored], metadata: dict
) -> tuple[dict[str, Stored], frozenset]:
    """Give arrays that timm stores in several forms one form.

    The halves of a packed SwiGLU become two arrays, separate projections of
    queries, keys and values one, and frequencies one for each block.

    Returns:
        The arrays, and the forms that they had.
    """
    arrays = table.rename(arrays, lambda name: name.removeprefix("module."))
    forms = set()
    if "blocks.0.in_proj.weight" in arrays:
        arrays = parallel.flatten(arrays)
        metadata["parallel"] = True
        forms.add("parallel")
    for name in list(arrays):
        if match := _FC1_X.fullmatch(name):
            table.add(arrays, f"{match[1]}fc1.{match[2]}", arrays.pop(name))
            forms.add("gate_apart")
        elif (match := _FC1.fullmatch(name)) and _is_packed(arrays, match[1]):
            forms.add("packed")
            cut(arrays, name, (f"{match[1]}fc1_g.{match[2]}", name))
        elif match := _Q_PROJ.fullmatch(name):
            forms.add("separate")
            _join_projections(arrays, match[1])
    if "rope.freqs" in arrays:
        forms.add("mixed")
        _part_frequencies(arrays)
    return arrays, frozenset(forms)


def _is_packed(arrays, mlp):
    """Whether the first layer has twice the width that the second reads."""
    first, second = f"{mlp}fc1.weight", f"{mlp}fc2.weight"
    if f"{mlp}fc1_g.weight" in arrays:  # the weight was cut, not the bias
        return arrays[f"{mlp}fc1.bias"].shape[0] == 2 * arrays[second].shape[1]
    return (
        second in arrays
        and arrays[first].shape[0] == 2 * arrays[second].shape[1]
    )


def cut(arrays: dict[str, Stored], name: str, names: tuple) -> None:
    """Cuts an array into equal parts along its first axis."""
    stored = arrays.pop(name)
    size = stored.shape[0] // len(names)
    for i, part in enumerate(names):
        one = stored.map(
            lambda a, i=i: a[i * size : (i + 1) * size],
            (size, *stored.shape[1:]),
        )
        table.add(arrays, part, one)


def _join_projections(arrays, attention):
    """Join the kernels of q, k and v, and their biases.

    Without a bias of keys, the biases of q and v are renamed.
    """
    for ending in ("weight", "bias"):
        parts = {
            part: arrays.pop(f"{attention}{part}_proj.{ending}")
            for part in "qkv"
            if f"{attention}{part}_proj.{ending}" in arrays
        }
        if len(parts) == 3:
            rows = sum(part.shape[0] for part in parts.values())
            joined = Stored(
                (rows, *parts["q"].shape[1:]),
                lambda parts=parts: np.concatenate(
                    [part.read() for part in parts.values()]
                ),
            )
            table.add(arrays, f"{attention}qkv.{ending}", joined)
            continue
        if ending == "weight":
            (missing,) = sorted(set("qkv") - set(parts))[:1]
            raise KeyError(f"{attention}{missing}_proj.weight")
        for part, stored in parts.items():
            table.add(arrays, f"{attention}{part}_bias", stored)


def _part_frequencies(arrays):
    stored = arrays.pop("rope.freqs")
    if len(stored.shape) != 4:
        raise ValueError(
            f"expected `rope.freqs` of 4 axes; found shape {stored.shape}"
        )
    shape = (stored.shape[0], *stored.shape[2:])
    for i in range(stored.shape[1]):
        one = stored.map(lambda a, i=i: a[:, i], shape)
        table.add(arrays, f"blocks.{i}.rope.freqs", one)


def is_class_apart(metadata: dict) -> bool:
    """Whether positions in timm's file are those of the patches alone."""
    prefix = metadata["class_token"] + metadata["num_registers"]
    return metadata["position_prefix"] != prefix


def forms(metadata: dict, *others: str) -> frozenset:
    """Return the forms in which timm stores a model with registers.

    In its files all tokens before the patches have a position or none has.
    That of a class token alone is added to the token.

    Args:
        metadata: Of the model.
        *others: Its other forms.
    """
    merged = metadata["position_prefix"] and is_class_apart(metadata)
    return frozenset({*others, *(("merge_class",) if merged else ())})


def restore(
    arrays: dict[str, np.ndarray], forms: frozenset
) -> dict[str, np.ndarray]:
    """Invert `flatten`."""
    arrays = dict(arrays)
    for name in list(arrays):
        match = _FC1.fullmatch(name)
        if match and f"{match[1]}fc1_g.{match[2]}" in arrays:
            if "packed" in forms:
                gate = arrays.pop(f"{match[1]}fc1_g.{match[2]}")
                arrays[name] = np.concatenate([gate, arrays[name]])
            else:
                arrays[f"{match[1]}fc1_x.{match[2]}"] = arrays.pop(name)
    if "separate" in forms:
        for name in [n for n in arrays if n.endswith(".attn.qkv.weight")]:
            attention = name.removesuffix("qkv.weight")
            width = arrays[name].shape[1]
            for ending in ("weight", "bias"):
                joined = arrays.pop(f"{attention}qkv.{ending}", None)
                if joined is None:
                    continue
                last = (len(joined) + width) // 2
                parts = np.split(joined, [width, last])
                for part, array in zip("qkv", parts, strict=True):
                    arrays[f"{attention}{part}_proj.{ending}"] = array
            for part in "qv":
                bias = arrays.pop(f"{attention}{part}_bias", None)
                if bias is not None:
                    arrays[f"{attention}{part}_proj.bias"] = bias
    if "merge_class" in forms:
        first, rest = np.split(arrays["pos_embed"], [1], axis=1)
        arrays["cls_token"] = arrays["cls_token"] + first
        arrays["pos_embed"] = rest
    if "parallel" in forms:
        arrays = parallel.restore(arrays)
    frequencies = [n for n in arrays if n.endswith(".rope.freqs")]
    if frequencies:
        parts = [
            arrays.pop(f"blocks.{i}.rope.freqs")
            for i in range(len(frequencies))
        ]
        arrays["rope.freqs"] = np.stack(parts, axis=1)
    return arrays


def settings(config: dict, known: str, epsilon: float) -> dict:
    """Return the metadata in a config of timm, and the constants of its name.

    Args:
        config: The config.json.
        known: Pattern of the names of architectures whose constants are these.
        epsilon: Epsilon of LayerNorm of these.
    """
    arguments = configs.section(config, "model_args")
    name = timm_config.architecture_of(config) or ""
    activation = configs.choice(arguments, "act_layer", _ACTIVATIONS)
    found = timm_config.read(config) | dict(
        num_heads=configs.integer(arguments, "num_heads"),
        hidden_size=configs.integer(arguments, "embed_dim"),
        num_layers=configs.integer(arguments, "depth"),
        patch_size=configs.pair(arguments, "patch_size"),
        pooling=arguments.get("global_pool") or config.get("global_pool"),
    )
    if found["pooling"] not in (None, "token", "avg", "map"):
        raise ValueError(
            f"global_pool={found['pooling']!r} is not supported; expected "
            "'token', 'avg' or 'map'"
        )
    if re.fullmatch(known, name):
        found["layer_norm_epsilon"] = epsilon
        found["post_norm"] = "_rpn_" in name
        found["activation"] = "gelu"
        if _TANH.fullmatch(name):
            found["activation"] = "gelu_tanh"
        elif "quickgelu" in name:
            found["activation"] = "quick_gelu"
        found["default_heads"] = not found["hidden_size"]
    if activation and activation != "silu":
        found["activation"] = activation
    return configs.known(**found)


def heads_of(width: int, name: str) -> int:
    """Return the number of heads of an architecture of timm."""
    if width == 1536 and "siglip" not in name and "pe_" not in name:
        return 24
    if width == 1280 and "dinov3" in name:
        return 20
    return _HEADS.get(width, width // 64)


def with_heads(format: table.Format, **required) -> table.Format:
    """Return a format whose architectures specify their number of heads.

    Args:
        format: The format.
        **required: Further fields that must be known; see `table.Format`.
    """
    read_arrays = format.read_arrays

    def read(arrays, config, specified):
        # A config that gives a width of its own gives the heads as well.
        default = specified.pop("default_heads", False)
        if "num_heads" not in specified and default:
            width = arrays["patch_embed.proj.weight"].shape[0]
            name = timm_config.architecture_of(config)
            specified["num_heads"] = heads_of(width, name)
        found = read_arrays(arrays, config, specified)
        if found["layer_scale"]:  # not where norms follow the branches
            found["post_norm"] = False
        return found

    return dataclasses.replace(
        format,
        read_arrays=read,
        required=lambda metadata: format.required(metadata) | required,
    )


def config_of(metadata: dict, architecture: str, **arguments) -> dict:
    """Return the config.json of timm for a model; inverts `settings`.

    Args:
        metadata: Of the model.
        architecture: Name of an architecture with its constants.
        **arguments: Further arguments of the architecture.
    """
    classifier = metadata["classifier"]
    pooling = "avg" if classifier.startswith("gap") else classifier
    pooling = pooling.removesuffix("_unnormed")
    arguments = dict(
        img_size=list(metadata["image_size"]),
        patch_size=list(metadata["patch_size"]),
        embed_dim=metadata["hidden_size"],
        depth=metadata["num_layers"],
        num_heads=metadata["num_heads"],
        global_pool=pooling,
        **arguments,
    )
    return timm_config.write(metadata, architecture, **arguments) | dict(
        num_features=metadata["hidden_size"], global_pool=pooling
    )


def differences(metadata: dict, epsilon: float) -> list[str]:
    """List what timm computes differently."""
    found = table.pixel_differences(metadata)
    if metadata.get("layer_norm_epsilon", epsilon) != epsilon:
        found.append(f"it adds {epsilon} in LayerNorm")
    return found


def refused(metadata: dict, format: str) -> list[str]:
    """List the parts of a model that timm cannot store."""
    found = table.refuse_pre_logits(metadata)
    if metadata["classifier"] == "token_and_gap":
        found.append("classifier='token_and_gap'")
    return found
