"""Files of authors' own code that are not read, and what to open instead."""

from keras_vit.weights.rules import table

# Of which code a file is -> patterns, each of which matches a name in it,
# copies that are read, and the folder of transformers' script that makes one.
_FILES = {
    "CLIP, OpenCLIP or Perception Encoder": (
        (r"(visual\.)?transformer\.resblocks\..*",),
        "hf://openai/clip-vit-base-patch32, "
        "hf://timm/vit_pe_core_base_patch16_224.fb or a directory with "
        "open_clip_config.json",
        None,
    ),
    "big_vision's SigLIP, LiT, CLIPPO or PaliGemma": (
        (r"(params/)?img/.*",),
        "hf://google/siglip-base-patch16-224",
        None,
    ),
    "BEiT-3": (
        (r"beit3\..*",),
        "hf://timm/beit3_base_patch16_224.in22k_ft_in1k",
        None,
    ),
    "EoMT": (
        (r"(network\.)?encoder\.backbone\..*", r"(network\.)?attn_mask_probs"),
        "hf://tue-mps/coco_panoptic_eomt_large_640",
        "eomt",
    ),
    "Depth Anything": (
        (r"depth_head\.scratch\..*",),
        "hf://depth-anything/Depth-Anything-V2-Small-hf",
        "depth_anything",
    ),
    "DPT": ((r"scratch\.refinenet\d\..*",), "hf://Intel/dpt-large", "dpt"),
    "ViTPose": (
        (r"keypoint_head\..*", r"backbone\.blocks\..*"),
        "hf://usyd-community/vitpose-base",
        "vitpose",
    ),
    "YOLOS": ((r"backbone\.det_token",), "hf://hustvl/yolos-tiny", "yolos"),
    "VideoMAE": (
        (
            r"(encoder\.)?patch_embed\.proj\.weight of 5 axes",
            # Without qkv_bias, what else it has and an MViT has not.
            r"(encoder\.)?blocks\.0\.attn\.q_bias|fc_norm\.weight"
            r"|encoder_to_decoder\.weight",
        ),
        "hf://MCG-NJU/videomae-base",
        "videomae",
    ),
}


def refuse(names) -> None:
    """Refuse a file of authors' code.

    Args:
        names: Of its arrays, as in `table.Format.requires`.

    Raises:
        ValueError: If it is one.
    """
    for title, (patterns, copies, folder) in _FILES.items():
        if all(table.matching(pattern, names) for pattern in patterns):
            script = (
                f", or what the script of src/transformers/models/{folder} in "
                "transformers' repository writes of it"
            )
            raise ValueError(
                f"it has the names of the authors' code of {title}, which are "
                f"not read. Open a copy, such as {copies}"
                f"{script if folder else ''}."
            )
