"""Names and settings of timm's VisionTransformer, Eva and Beit.

A config of timm has the name of an architecture, and the arguments that differ
from it; other constants are only in timm's code. Taken from timm 1.0.31.
"""

import re

import numpy as np

from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import configs, table, timm_config
from keras_vit.weights.rules.encoder import rotary

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

# Blocks whose attention and MLP are parallel (`ParallelScalingBlock`): one
# array has both projections, the hidden units, then queries, keys and values.
_PARALLEL = {
    "in_norm": "norm1",
    "q_norm": "attn.q_norm",
    "k_norm": "attn.k_norm",
    "attn_out_proj": "attn.proj",
    "mlp_out_proj": "mlp.fc2",
    "mlp_bias": "mlp.fc1.bias",
    "ls": "ls1",
}
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
# Architectures whose GELU is the tanh form: some of the SigLIP towers.
TANH = re.compile(
    r"vit_base_patch32_siglip_(gap_)?256|vit_giantopt_patch16_siglip_.*"
    r"|vit_large_patch16_siglip_(gap_)?512|vit_so400m_patch16_siglip_.*"
)
POST_NORM = "False (nearly all) or True (timm's rpn)"
ACTIVATIONS = ("gelu", "gelu_tanh", "quick_gelu")


def flatten(
    arrays: dict[str, Stored], metadata: dict
) -> tuple[dict[str, Stored], frozenset]:
    """Give arrays that timm stores in several forms one form.

    The halves of a packed SwiGLU become two arrays, separate projections of
    queries, keys and values one, and frequencies one for each block.

    Returns:
        The arrays, and the forms that they had.
    """
    arrays = dict(arrays)
    arrays.pop("mask_token", None)  # of training alone
    forms = set()
    if "blocks.0.in_proj.weight" in arrays:
        arrays = _part_parallel(arrays)
        metadata["parallel"] = True
        forms.add("parallel")
    for name in list(arrays):
        if match := _FC1_X.fullmatch(name):
            table.add(arrays, f"{match[1]}fc1.{match[2]}", arrays.pop(name))
            forms.add("gate_apart")
        elif (match := _FC1.fullmatch(name)) and _is_packed(arrays, match[1]):
            forms.add("packed")
            size = arrays[name].shape[0] // 2
            gate = f"{match[1]}fc1_g.{match[2]}"
            table.cut(arrays, name, {gate: size, name: size})
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


def _join_projections(arrays, attention):
    """Join the kernels of q, k and v, and their biases.

    Without a bias of keys, the biases of q and v are renamed.
    """
    kernels, biases = (
        [f"{attention}{part}_proj.{ending}" for part in "qkv"]
        for ending in ("weight", "bias")
    )
    for name in kernels:
        if name not in arrays:
            raise KeyError(name)
    table.join(arrays, kernels, f"{attention}qkv.weight")
    if arrays.keys() >= set(biases):
        table.join(arrays, biases, f"{attention}qkv.bias")
    for name in [name for name in biases if name in arrays]:
        table.add(arrays, name.replace("_proj.", "_"), arrays.pop(name))


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
    """
    merged = (
        metadata.get("positions", True)
        and metadata["position_prefix"]
        and is_class_apart(metadata)
    )
    return frozenset({*others, *(("merge_class",) if merged else ())})


def restore(arrays: dict, forms: frozenset) -> dict:
    """Invert `flatten`."""
    arrays = dict(arrays)
    for name in [name for name in arrays if _FC1.fullmatch(name)]:
        gate = name.replace(".fc1.", ".fc1_g.")
        if gate in arrays and "packed" in forms:
            table.join(arrays, [gate, name], name)
        elif gate in arrays:
            arrays[name.replace(".fc1.", ".fc1_x.")] = arrays.pop(name)
    if "separate" in forms:
        for name in [n for n in arrays if n.endswith(".attn.qkv.weight")]:
            _part_projections(arrays, name.removesuffix("qkv.weight"))
    if "merge_class" in forms:
        first, rest = np.split(arrays["pos_embed"], [1], axis=1)
        arrays["cls_token"] = arrays["cls_token"] + first
        arrays["pos_embed"] = rest
    if "parallel" in forms:
        arrays = _join_parallel(arrays)
    count = table.count(arrays, re.compile(r"blocks\.(\d+)\.rope\.freqs"))
    if count:
        parts = [arrays.pop(f"blocks.{i}.rope.freqs") for i in range(count)]
        arrays["rope.freqs"] = np.stack(parts, axis=1)
    return arrays


def _part_projections(arrays, attention):
    """Invert `_join_projections`."""
    width = arrays[f"{attention}qkv.weight"].shape[1]
    for ending in ("weight", "bias"):
        name = f"{attention}qkv.{ending}"
        if name in arrays:
            shared = (len(arrays[name]) - width) // 2
            sizes = dict(q=width, k=shared, v=shared)
            parts = {
                f"{attention}{p}_proj.{ending}": n for p, n in sizes.items()
            }
            table.cut(arrays, name, parts)
    for part in "qv":
        if f"{attention}{part}_bias" in arrays:
            bias = arrays.pop(f"{attention}{part}_bias")
            arrays[f"{attention}{part}_proj.bias"] = bias


def _renamed(arrays, names):
    """Rename the parts of blocks."""
    parts = "|".join(map(re.escape, names))
    pattern = re.compile(rf"(blocks\.\d+\.)({parts})(\..*|)")

    def rename(name):
        match = pattern.fullmatch(name)
        return match[1] + names[match[2]] + match[3] if match else name

    return table.rename(arrays, rename)


def _part_parallel(arrays: dict) -> dict:
    """Give the arrays the names of sequential blocks."""
    arrays = _renamed(arrays, _PARALLEL)
    for name in [n for n in arrays if ".in_proj." in n]:
        block, ending = name.split("in_proj")
        hidden = arrays[f"{block}mlp.fc2.weight"].shape[1]
        rest = arrays[name].shape[0] - hidden
        parts = {f"{block}mlp.fc1{ending}": hidden}
        table.cut(arrays, name, parts | {f"{block}attn.qkv{ending}": rest})
    return arrays


def _join_parallel(arrays: dict) -> dict:
    """Invert `_part_parallel`."""
    arrays = dict(arrays)
    for name in [n for n in arrays if ".attn.qkv." in n]:
        both = [name.replace("attn.qkv", "mlp.fc1"), name]
        table.join(arrays, both, name.replace("attn.qkv", "in_proj"))
    return _renamed(arrays, {new: old for old, new in _PARALLEL.items()})


def settings(config: dict, known: dict[str, tuple[float, dict]]) -> dict:
    """Return the metadata in a config of timm, and the constants of its name.

    Args:
        config: The config.json.
        known: Pattern of names of architectures -> the epsilon of LayerNorm,
            and further metadata, that only timm's code has.
    """
    arguments = configs.section(config, "model_args")
    name = timm_config.architecture_of(config) or ""
    activation = configs.choice(arguments, "act_layer", (*ACTIVATIONS, "silu"))
    found = timm_config.read(config) | dict(
        num_heads=configs.integer(arguments, "num_heads"),
        hidden_size=configs.integer(arguments, "embed_dim"),
        num_layers=configs.integer(arguments, "depth"),
        patch_size=configs.pair(arguments, "patch_size"),
        global_pool=arguments.get("global_pool") or config.get("global_pool"),
    )
    constants = (row for row in known.items() if re.fullmatch(row[0], name))
    for _, (epsilon, others) in constants:
        found |= dict(
            layer_norm_epsilon=epsilon,
            post_norm="_rpn_" in name,
            activation="gelu",
            default_heads=not found["hidden_size"],
        )
        if TANH.fullmatch(name):
            found["activation"] = "gelu_tanh"
        elif "quickgelu" in name:
            found["activation"] = "quick_gelu"
        found |= others
        break
    if activation and activation != "silu":
        found["activation"] = activation
    if configs.choice(arguments, "norm_layer", timm_config.NORMS):
        found["layer_norm_epsilon"] = 1e-6  # of timm's classes of these names
    return configs.known(**found) | rotary.settings(arguments, found)


def heads_of(width: int, name: str) -> int:
    """Return the number of heads of an architecture of timm."""
    if width == 1536 and "siglip" not in name and "pe_" not in name:
        return 24
    if width == 1280 and "dinov3" in name:
        return 20
    return _HEADS.get(width, width // 64)


def config_of(
    metadata: dict, architecture: str, activation: str = "gelu", **arguments
) -> dict:
    """Return the config.json of timm for a model; inverts `settings`.

    Args:
        metadata: Of the model.
        architecture: Name of an architecture with its constants.
        activation: That of the architecture.
        **arguments: Further arguments of the architecture.
    """
    pooling = metadata["pooling"]
    pooling = "avg" if pooling.startswith("gap") else pooling
    pooling = pooling.removesuffix("_unnormed")
    if metadata["activation"] not in (activation, "swiglu"):
        arguments["act_layer"] = metadata["activation"]
    arguments = (
        dict(
            img_size=list(metadata["image_size"]),
            patch_size=list(metadata["patch_size"]),
            embed_dim=metadata["hidden_size"],
            depth=metadata["num_layers"],
            num_heads=metadata["num_heads"],
            mlp_ratio=metadata["mlp_dim"] / metadata["hidden_size"],
            global_pool=pooling,
        )
        | arguments
    )
    return timm_config.write(metadata, architecture, **arguments) | dict(
        num_features=metadata["hidden_size"],
        global_pool=arguments["global_pool"],
    )


def differences(metadata: dict, epsilon: float) -> list[str]:
    """List what timm computes differently."""
    found = table.pixel_differences(metadata)
    if metadata.get("layer_norm_epsilon", epsilon) != epsilon:
        found.append(f"it adds {epsilon} in LayerNorm")
    return found


def refused(metadata: dict, format: str) -> list[str]:
    """List the parts of a model that timm cannot store."""
    gated = metadata["activation"] == "swiglu"
    return refused_gated(metadata, format) + table.listed(
        {"activation='swiglu'": gated}
    )


def refused_gated(metadata: dict, format: str) -> list[str]:
    """List the parts that timm cannot store of one that may have gates."""
    pools = metadata["pooling"] == "token_and_gap"
    return table.refuse_pre_logits(metadata) + table.listed(
        {"pooling='token_and_gap'": pools}
    )


def refused_by_eva(metadata: dict, format: str) -> list[str]:
    """List the parts of a model that timm's Eva cannot store."""
    activation = metadata["activation"]
    return refused_gated(metadata, format) + table.listed(
        {f"activation={activation!r}": activation not in ("gelu", "swiglu")}
    )
