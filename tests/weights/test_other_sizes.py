"""Libraries read what is written for them, at its size and at others.

Their own files are resampled here as they resample them.
"""

import json

import keras
import numpy as np
import pytest
import realistic

import keras_vit
from keras_vit.weights import rules, save

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.backend("torch"),
]
TINY = dict(
    patch_size=4,
    hidden_size=16,
    num_layers=1,
    num_heads=2,
    mlp_dim=64,  # transformers' DINOv2 has none but 4 D
    class_names=tuple("abcde"),
    pixel_mean=(120.0, 110.0, 100.0),
    pixel_std=(50.0, 60.0, 70.0),
)
SCALED = dict(rotary_reference=(2, 3), rotary_order="ij")
BARE = dict(include_top=False, class_names=None)
OLD = dict(layer_norm_epsilon=1e-12)  # of transformers' first models
# Case: constructor, the arguments of the model, and of one for transformers.
CASES = {
    "vit": ("ViT", {}, OLD),
    "vit, mean beside a token": (
        "ViT",
        dict(pooling="gap_norm", class_token=True),
        None,
    ),
    "hybrid": (
        "ViT",
        dict(patch_size=1, resnet_depths=(), resnet_numerics="timm"),
        None,
    ),
    "deit": ("DeiT", {}, OLD),
    "dinov2": ("DINOv2", BARE, {}),
    "dinov2, registers": ("DINOv2", dict(BARE, num_registers=4), {}),
    "deit3": ("DINOv2", dict(position_prefix=0), None),
    "dinov3": ("DINOv3", BARE, {}),
    "clip": ("CLIP", BARE, {}),
    "siglip": ("SigLIP", BARE, {}),
    "beit": ("BEiT", {}, OLD),
    "relative": (
        "BEiT",
        dict(
            relative_dim=8,
            class_token=False,
            pooling="gap",
            qkv_bias="none",
        ),
        None,
    ),
    "sapiens2": (
        "DINOv3",
        dict(
            BARE,
            hidden_size=32,
            num_layers=3,
            num_heads=4,
            num_kv_heads=2,
            num_full_blocks=1,
            norm="rms",
            query_key_norm=True,
            mlp_scale=False,
            activation="swiglu",
            qkv_bias="qkv",
            layer_norm_epsilon=1e-6,
        ),
        None,
    ),
    "eva02": ("EVA02", SCALED, None),
    "perception encoder": (
        "EVA02",
        dict(
            SCALED,
            pooling="map",
            pooling_mlp_dim=24,
            pre_norm=True,
            activation="gelu",
            qkv_bias="qkv",
            layer_norm_epsilon=1e-5,
        ),
        None,
    ),
    "beit3": (
        "EVA02",
        dict(
            rotary="none",
            activation="gelu",
            qkv_bias="qkv",
            attention_norm=True,
            mlp_norm=True,
            layer_norm_epsilon=1e-5,
        ),
        None,
    ),
}
WRITERS = [
    (case, format)
    for case, (_, _, extra) in CASES.items()
    for format in ("timm", *(() if extra is None else ("huggingface",)))
]
SQUARES = ("DINOv2", "CLIP", "SigLIP", "BEiT")  # of transformers
RECTANGLE, SQUARE, OTHER = (2, 3), (3, 3), (4, 3)  # in patches


def make(case, format, grid):
    """Returns a model of a case for images of a grid of patches."""
    constructor, arguments, extra = CASES[case]
    shape = (*(4 * n for n in grid), 3)
    if format == "huggingface":
        arguments = arguments | extra
    model = getattr(keras_vit, constructor)(
        **TINY | dict(input_shape=shape) | arguments
    )
    return realistic.fill(model)


def draw(model, size):
    """Returns pixels, and the same, scaled and channels first, for torch."""
    pixels = np.random.default_rng(0).uniform(0, 255, (2, *size, 3))
    x = (pixels - model.pixel_mean) / model.pixel_std
    x = torch.from_numpy(x.transpose(0, 3, 1, 2).astype("float32"))
    return pixels.astype("float32"), x


def run_timm(timm, path, x, **arguments):
    model = timm.create_model(f"local-dir:{path}", pretrained=True, **arguments)
    with torch.no_grad():
        return model.eval()(x).numpy()


def run_transformers(transformers, path, x, resized):
    (name,) = json.loads((path / "config.json").read_text())["architectures"]
    model = getattr(transformers, name).from_pretrained(path).eval()
    arguments = {}
    # DINOv2, DINOv3 and BEiT always do it.
    if resized and name.startswith(("ViT", "DeiT", "CLIP", "Siglip")):
        arguments = dict(interpolate_pos_encoding=True)
    with torch.no_grad():
        output = model(x, **arguments)
    return output.get("logits", output.get("pooler_output")).numpy()


def check(model, pixels, expected):
    found = keras.ops.convert_to_numpy(model(pixels))
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 2e-6 * np.abs(expected).max()


def compare(case, format, grid, libraries, path):
    """Compares a written file with its library at its size and at another."""
    timm, transformers = libraries
    model = make(case, format, grid)
    keras_vit.save_checkpoint(model, path, format)
    pixels, x = draw(model, model.image_shape[:2])
    if format == "timm":
        check(model, pixels, run_timm(timm, path, x))
    else:
        check(model, pixels, run_transformers(transformers, path, x, False))
    # These take a table's grid to be a square.
    if grid == RECTANGLE and (
        format == "huggingface" or case in ("hybrid", "beit")
    ):
        return
    size = tuple(4 * n for n in OTHER)
    pixels, x = draw(model, size)
    ours = keras_vit.from_pretrained(path, input_shape=(*size, 3))
    assert ours.class_names == model.class_names
    if format == "timm":
        check(ours, pixels, run_timm(timm, path, x, img_size=size))
    else:
        check(ours, pixels, run_transformers(transformers, path, x, True))


@pytest.mark.parametrize(("case", "format"), WRITERS)
def test_a_written_file_has_the_librarys_numbers_at_any_size(
    case, format, timm, transformers, tmp_path
):
    libraries = timm, transformers
    if format == "huggingface" and CASES[case][0] in SQUARES:
        with pytest.raises(ValueError, match="images that are not square"):
            compare(case, format, RECTANGLE, libraries, tmp_path)
    else:
        compare(case, format, RECTANGLE, libraries, tmp_path / "rectangle")
    if format == "huggingface" or case in ("hybrid", "beit"):
        compare(case, format, SQUARE, libraries, tmp_path / "square")


def test_every_writer_for_these_libraries_is_compared():
    cases = {(CASES[case][0], format) for case, format in WRITERS}
    wanted = {
        (keras_vit.models.families.FAMILIES[family].title, format)
        for family in keras_vit.models.families.FAMILIES
        for format in ("timm", "huggingface")
        if format in save.formats(family)
        and not hasattr(rules.FAMILIES[family], "FILES_OF")
        # Compared in tests/heads/test_masked.py.
        and family != "videomae"
    }
    assert wanted - cases == {(title, "timm") for title, *_ in MIXERS.values()}


# Family: constructor, its arguments, the row of the sizes that timm has, and
# the arguments of timm's class.
MIXERS = {
    "mixer": (
        "MLPMixer",
        dict(tokens_mlp_dim=8, mlp_dim=32, gelu_approximate=False),
        {(16, 4, 1): "mixer_s16_224"},
        {},
    ),
    "gmlp": (
        "GMLP",
        dict(mlp_dim=96),
        {(16, 4, 1): "gmlp_ti16_224"},
        dict(block_layer="SpatialGatingBlock", mlp_layer="GatedMlp"),
    ),
    "res_mlp": (
        "ResMLP",
        dict(mlp_dim=64),
        {(16, 4, 1): "resmlp_12_224"},
        dict(block_layer="ResBlock", norm_layer="Affine"),
    ),
    "bit": (
        "BiT",
        dict(depths=(1, 1), width_factor=0.5, numerics="timm"),
        {((1, 1), 0.5): "resnetv2_50x1_bit"},
        dict(layers=(1, 1), channels=(256, 512), width_factor=0.5),
    ),
}


@pytest.mark.parametrize("family", MIXERS)
def test_timm_reads_a_rectangle_of(family, timm, tmp_path, monkeypatch):
    constructor, arguments, sizes, kind = MIXERS[family]
    for size, name in sizes.items():
        known = rules.FAMILIES[family]._ARCHITECTURES
        monkeypatch.setitem(known, size, name)
    common = {k: TINY[k] for k in ("class_names", "pixel_mean", "pixel_std")}
    common["input_shape"] = (16, 24, 3)
    if family != "bit":
        common |= dict(patch_size=4, hidden_size=16, num_layers=1)
    model = getattr(keras_vit, constructor)(**common, **arguments)
    realistic.fill(model)
    keras_vit.save_checkpoint(model, tmp_path, "timm")
    config = json.loads((tmp_path / "config.json").read_text())
    own = dict(config["model_args"], num_classes=config["num_classes"])
    if family == "bit":
        theirs = timm.models.resnetv2._create_resnetv2_bit(
            config["architecture"], **own, **kind
        )
    else:
        mixers = timm.models.mlp_mixer
        theirs = mixers.MlpMixer(
            patch_size=4,
            embed_dim=16,
            num_blocks=1,
            **dict(dict(mlp_ratio=6 if family == "gmlp" else 4), **own),
            **{key: getattr(mixers, name) for key, name in kind.items()},
        )
    timm.models.load_checkpoint(theirs, str(tmp_path / "model.safetensors"))
    pixels, x = draw(model, model.image_shape[:2])
    with torch.no_grad():
        check(model, pixels, theirs.eval()(x).numpy())


ARCHITECTURES = {
    "vit_base_patch16_224": {},
    "deit_small_patch16_224": {},
    "eva_large_patch14_196": {},
    "vit_base_patch16_siglip_gap_224": {},
    "flexivit_small": {},
    "vit_base_patch16_radio_v3": dict(reg_tokens=2),
    "vit_huge_patch16_radio_v4": dict(reg_tokens=2),
    "deit3_small_patch16_224": {},
    "vit_base_patch16_224_miil": {},
    "vit_base_patch16_rpn_224": {},
    "vit_relpos_small_patch16_224": {},
    "vit_relpos_base_patch16_cls_224": {},
    "vit_relpos_base_patch16_clsgap_224": {},
    "vit_relpos_base_patch32_plus_rpn_256": {},
    "vit_srelpos_small_patch16_224": {},
    "vit_pwee_patch16_reg1_gap_256": {},
    "vit_base_patch16_xp_224": {},
    "test_vit4": {},
    "vit_large_patch16_sapiens2": dict(
        depth=3, num_heads=4, num_kv_heads=(4, 2, 4)
    ),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_timms_own_files_are_resized_as_timm_does(name, timm, tmp_path):
    """Positions, and the kernel of patches."""
    from safetensors.torch import save_file

    arguments = (
        dict(
            img_size=(24, 24), patch_size=8, embed_dim=16, depth=1, num_heads=2
        )
        | ARCHITECTURES[name]
    )
    theirs = timm.create_model(name, num_classes=5, **arguments)
    generator = torch.Generator().manual_seed(0)
    state = {
        key: torch.randn(value.shape, generator=generator) * 0.3
        for key, value in theirs.state_dict().items()
    }
    save_file(state, tmp_path / "model.safetensors")
    half = (0.5,) * 3
    config = dict(
        architecture=name,
        num_classes=5,
        global_pool=theirs.global_pool,
        model_args=arguments,
        pretrained_cfg=dict(
            input_size=(3, 24, 24), num_classes=5, mean=half, std=half,
            classifier="head", first_conv="patch_embed.proj",
        ),
    )  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    changes = (
        dict(input_shape=(32, 16, 3)),
        dict(input_shape=(40, 30, 3), patch_size=10, resize_patches=True),
    )
    for change in changes[: 1 if "relpos" in name else 2]:
        model = keras_vit.from_pretrained(tmp_path, **change)
        size = model.image_shape[:2]
        pixels, x = draw(model, size)
        other = {"patch_size": change["patch_size"]} if len(change) > 1 else {}
        check(
            model, pixels, run_timm(timm, tmp_path, x, img_size=size, **other)
        )
    methods = dict(flexivit_small="bilinear")
    methods["vit_base_patch16_radio_v3"] = "aligned_bilinear"
    methods["vit_huge_patch16_radio_v4"] = "bilinear"
    if name in ("vit_base_patch16_xp_224", "vit_large_patch16_sapiens2"):
        model.save(tmp_path / "own.keras")
        again = keras_vit.from_pretrained(tmp_path / "own.keras")
        check(again, pixels, keras.ops.convert_to_numpy(model(pixels)))
    if "relpos" not in name:
        assert model.resampling == methods.get(name, "antialiased_bicubic")


def test_the_files_of_sapiens2_have_the_authors_names(timm, tmp_path):
    """timm renames them when it reads them."""
    import re

    from safetensors.torch import save_file

    name = "vit_large_patch16_sapiens2"
    arguments = dict(
        img_size=(24, 16), patch_size=8, embed_dim=16, depth=3, num_heads=4
    ) | dict(num_kv_heads=(4, 2, 4))
    theirs = timm.create_model(name, **arguments).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in theirs.parameters():
        with torch.no_grad():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.3 * noise)
    state = {"mask_token": torch.zeros(1), "rope_embed.periods": torch.ones(4)}
    for key, value in theirs.state_dict().items():
        for new, old in (
            ("reg_token", "storage_tokens"),
            (r"^norm\.", "ln1."),
            (r"\.norm(\d)", r".ln\1"),
            (r"patch_embed\.proj", "patch_embed.projection"),
            (r"(\w)_proj", r"w\1"),
            ("gamma_1", "attn.gamma.weight"),
            (r"mlp\.fc1", "ffn.w12"),
            (r"mlp\.fc2", "ffn.w3"),
        ):
            key = re.sub(new, old, key)
        state[key] = value
    renamed = timm.models.eva.checkpoint_filter_fn(state, theirs)
    assert renamed.keys() == theirs.state_dict().keys()
    save_file(state, tmp_path / "model.safetensors")
    config = dict(
        architecture=name,
        num_classes=0,
        global_pool="token",
        model_args=arguments,
        pretrained_cfg=dict(mean=(0.5,) * 3, std=(0.5,) * 3),
    )
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = keras_vit.from_pretrained(tmp_path)
    assert model.architecture.num_kv_heads == 2
    pixels, x = draw(model, (24, 16))
    with torch.no_grad():
        check(model, pixels, theirs(x).numpy())
