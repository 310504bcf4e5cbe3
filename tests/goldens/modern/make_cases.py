"""Writes the cases of this folder: what timm and transformers compute.

    python tests/goldens/modern/make_cases.py [NAME ...]

A case holds a config, the names and shapes of the arrays, and the outputs of
the library on an image. Arrays and image are drawn by `drawn.py` and not
stored. Made with timm 1.0.31 and transformers 5.23.0 on PyTorch.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
from drawn import draw_arrays, draw_pixels

# A torchvision for CUDA beside a torch without lacks its operators.
operators = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):
    try:
        operators.define(
            f"{operator}(Tensor dets, Tensor scores, float t) -> Tensor"
        )
    except RuntimeError:
        pass

FOLDER = pathlib.Path(__file__).parent
SMALL = dict(embed_dim=16, depth=2, num_heads=2, patch_size=4)
TIMM = {
    "timm_deit3": ("deit3_small_patch16_224", dict(num_classes=3)),
    "timm_dinov2": ("vit_small_patch14_dinov2", dict(img_size=(8, 12))),
    "timm_dinov2_swiglu": (
        "vit_giant_patch14_reg4_dinov2",
        dict(embed_dim=24),
    ),
    "timm_dinov2_avg": (
        "vit_small_patch14_reg4_dinov2",
        dict(global_pool="avg", num_classes=3),
    ),
    "timm_registers": (
        "vit_betwixt_patch16_reg4_gap_256",
        dict(num_classes=3, mlp_ratio=5.6),
    ),
    # Registers have positions, too.
    "timm_so150m": ("vit_so150m_patch16_reg4_gap_256", dict(num_classes=3)),
    "timm_so150m_map": ("vit_so150m_patch16_reg4_map_256", dict()),
    "timm_no_qkv_bias": (
        "vit_so150m2_patch16_reg1_gap_256",
        dict(num_classes=3),
    ),
    "timm_intern": ("vit_intern300m_patch14_448", dict()),
    "timm_clip": ("vit_base_patch16_clip_224", dict(num_classes=3)),
    "timm_clip_quickgelu": (
        "vit_base_patch32_clip_quickgelu_224",
        dict(num_classes=3),
    ),
    "timm_siglip": ("vit_base_patch16_siglip_224", dict()),
    "timm_siglip_tanh": ("vit_so400m_patch16_siglip_256", dict()),
    "timm_dinov3": (
        "vit_small_patch16_dinov3",
        dict(img_size=(8, 12), embed_dim=24),
    ),
    "timm_dinov3_plus": (
        "vit_small_plus_patch16_dinov3_qkvb",
        dict(global_pool="token"),
    ),
    "timm_rope_registers": (
        "vit_medium_patch16_rope_reg1_gap_256",
        dict(img_size=(8, 12), num_classes=3),
    ),
    "timm_rope": ("vit_small_patch16_rope_224", dict(num_classes=3)),
    "timm_rope_mixed": (
        "vit_small_patch16_rope_mixed_ape_224",
        dict(img_size=(8, 12), num_classes=3),
    ),
    "timm_beit": ("beit_base_patch16_224", dict(num_classes=3)),
    "timm_eva_giant": ("eva_giant_patch14_224", dict(num_classes=3)),
    "timm_eva02_tiny": (
        "eva02_tiny_patch14_224",
        dict(img_size=(8, 12), num_classes=3),
    ),
    "timm_eva02_base": ("eva02_base_patch14_448", dict(num_classes=3)),
    "timm_eva02_clip": ("eva02_base_patch16_clip_224", dict(num_classes=3)),
    "timm_deit_distilled": (
        "deit_small_distilled_patch16_224",
        dict(img_size=(8, 12), num_classes=3),
    ),
    "timm_eva02_enormous": (
        "eva02_enormous_patch14_clip_224",
        dict(num_classes=3, mlp_ratio=2.0),
    ),
    "timm_beit3": ("beit3_base_patch16_224", dict(num_classes=3)),
    "timm_radio": ("vit_base_patch16_radio_v3", dict()),
    "timm_pe_core": (
        "vit_pe_core_base_patch16_224",
        dict(num_classes=3, attn_pool_num_heads=4),
    ),
    # The pooling's MLP has another width than those of the blocks.
    "timm_pe_core_gigantic": (
        "vit_pe_core_gigantic_patch14_448",
        dict(attn_pool_num_heads=2),
    ),
    "timm_pe_lang": ("vit_pe_lang_large_patch14_448", dict()),
    "timm_pe_spatial": ("vit_pe_spatial_base_patch16_512", dict()),
}
BERT = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    image_size=8,
    patch_size=4,
)
DINOV2 = {k: v for k, v in BERT.items() if k != "intermediate_size"}
LABELS = dict(num_labels=3)
TRANSFORMERS = {
    "hf_dinov2": ("Dinov2Config", "Dinov2Model", DINOV2),
    "hf_dinov2_swiglu": (
        "Dinov2Config",
        "Dinov2Model",
        DINOV2 | dict(use_swiglu_ffn=True),
    ),
    "hf_dinov2_registers": (
        "Dinov2WithRegistersConfig",
        "Dinov2WithRegistersForImageClassification",
        DINOV2 | LABELS | dict(num_register_tokens=3),
    ),
    "hf_dinov3": (
        "DINOv3ViTConfig",
        "DINOv3ViTModel",
        BERT | dict(num_register_tokens=2),
    ),
    "hf_dinov3_gated": (
        "DINOv3ViTConfig",
        "DINOv3ViTModel",
        BERT
        | dict(use_gated_mlp=True, hidden_act="silu", num_register_tokens=1),
    ),
    "hf_clip": ("CLIPVisionConfig", "CLIPVisionModel", BERT),
    "hf_clip_projection": (
        "CLIPVisionConfig",
        "CLIPVisionModelWithProjection",
        BERT | dict(projection_dim=6, hidden_act="gelu"),
    ),
    "hf_clip_two_towers": ("CLIPConfig", "CLIPModel", BERT),
    "hf_siglip": ("SiglipVisionConfig", "SiglipVisionModel", BERT),
    "hf_siglip_two_towers": ("SiglipConfig", "SiglipModel", BERT),
    "hf_beit": (
        "BeitConfig",
        "BeitForImageClassification",
        BERT | LABELS | dict(use_relative_position_bias=True),
    ),
    "hf_deit_distilled": (
        "DeiTConfig",
        "DeiTForImageClassificationWithTeacher",
        BERT | LABELS,
    ),
    "hf_deit": ("DeiTConfig", "DeiTForImageClassification", BERT | LABELS),
    "hf_mae": ("ViTMAEConfig", "ViTMAEModel", BERT | dict(mask_ratio=0.0)),
    "hf_msn": ("ViTMSNConfig", "ViTMSNModel", BERT),
}
SIZES = {"hf_dinov3": (8, 12)}


def make_timm(name):
    import timm

    architecture, arguments = TIMM[name]
    arguments = {"img_size": (8, 8), "num_classes": 0, **SMALL, **arguments}
    model = timm.create_model(architecture, **arguments).eval()
    config = dict(
        architecture=architecture,
        num_classes=model.num_classes,
        num_features=model.num_features,
        global_pool=model.global_pool,
        model_args=arguments,
        pretrained_cfg=dict(
            mean=model.pretrained_cfg["mean"],
            std=model.pretrained_cfg["std"],
            input_size=[3, *arguments["img_size"]],
        ),
    )

    def run(x):
        features = model.forward_features(x)
        pooled = model.forward_head(features, pre_logits=True)
        return pooled, model.forward_head(features) if model.num_classes else 0

    return model, config, arguments["img_size"], run


def make_transformers(name):
    import transformers

    config_class, model_class, arguments = TRANSFORMERS[name]
    if name.endswith("two_towers"):
        text = dict(
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=8,
            vocab_size=9,
        )
        arguments = dict(vision_config=arguments, text_config=text)
        arguments |= dict(projection_dim=6) if "clip" in name else {}
    config = getattr(transformers, config_class)(**arguments)
    model = getattr(transformers, model_class)(config).eval()
    written = json.loads(config.to_json_string())

    def run(x):
        if name.endswith("two_towers"):
            tower = model.vision_model(x).pooler_output
            head = getattr(model, "visual_projection", None)
            return tower, 0 if head is None else head(tower)
        output = model(x)
        logits = getattr(output, "logits", getattr(output, "image_embeds", 0))
        pooled = getattr(output, "pooler_output", None)
        if name in ("hf_mae", "hf_msn"):
            pooled = output.last_hidden_state[:, 0]
        return 0 if pooled is None else pooled, logits

    return model, written, SIZES.get(name, (8, 8)), run


def make(name):
    maker = make_timm if name in TIMM else make_transformers
    model, config, size, run = maker(name)
    load = load_timm if name in TIMM else load_transformers
    shapes = load(model)
    model.double()
    mean, std = [0.4, 0.5, 0.6], [0.25, 0.3, 0.2]
    if name in TIMM:
        config["pretrained_cfg"] |= dict(mean=mean, std=std)
    pixels = draw_pixels(size)
    x = (pixels / 255 - mean) / std
    with torch.no_grad():
        pooled, logits = run(torch.from_numpy(x.transpose(0, 3, 1, 2).copy()))
    case = dict(
        config=config,
        processor=dict(image_mean=mean, image_std=std),
        size=list(size),
        shapes=shapes,
        pooled=np.asarray(pooled).tolist(),
        logits=np.asarray(logits).tolist(),
    )
    text = json.dumps(case)
    (FOLDER / f"{name}.json").write_text(text + "\n")
    print(name, len(text))


def load_timm(model):
    """Fills a model with drawn arrays; returns their shapes."""
    state = dict(model.named_parameters())
    shapes = {key: list(value.shape) for key, value in state.items()}
    for key, array in draw_arrays(shapes).items():
        state[key].data.copy_(torch.as_tensor(array))
    return shapes


def load_transformers(model):
    """Fills a model from a file; returns the shapes of the file's arrays."""
    from safetensors.numpy import load_file, save_file

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.safetensors"
        model.save_pretrained(folder)
        shapes = {key: list(a.shape) for key, a in load_file(path).items()}
        save_file(draw_arrays(shapes), path, metadata={"format": "pt"})
        loaded = type(model).from_pretrained(folder)
    model.load_state_dict(loaded.state_dict())
    return shapes


if __name__ == "__main__":
    for case in sys.argv[1:] or [*TIMM, *TRANSFORMERS]:
        try:
            make(case)
        except Exception as error:
            print(case, "FAILED", type(error).__name__, str(error)[:300])
