"""Writes outputs of libraries: tasks/, towers/, numerics/mvit_*, roi_align.

    python tests/goldens/make_released.py

A folder holds the files of a released model but for its arrays: of these
shapes.json has the names and shapes, and `modern/drawn.py` draws them. io.npz
keeps its inputs, and gets the outputs of the library. So do the MViT of
torchvision. Made with transformers 5.24.0 and torchvision 0.28.0 on PyTorch.
"""

import json
import pathlib
import sys

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
# A torchvision for CUDA beside a torch without lacks its operators.
operators = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):
    operators.define(
        f"{operator}(Tensor dets, Tensor scores, float t) -> Tensor"
    )

import torchvision  # noqa: E402
import transformers  # noqa: E402
from torchvision.models.video import mvit  # noqa: E402

from tests.drawn_folders import drawn, drawn_checkpoint  # noqa: E402


def inputs(data: dict, folder: pathlib.Path) -> dict:
    """Return what the library takes: images scaled, channels first, and ids."""
    if "patches" in data:
        return dict(
            pixel_values=torch.from_numpy(data["patches"]),
            pixel_attention_mask=torch.from_numpy(data["mask"]),
            spatial_shapes=torch.from_numpy(data["grids"]).long(),
            input_ids=torch.from_numpy(data["input_ids"]),
        )
    made = json.loads((folder / "preprocessor_config.json").read_text())
    x = data["pixels"].astype("float64") / 255
    x = (x - made["image_mean"]) / made["image_std"]
    x = torch.from_numpy(x.astype("float32").transpose(0, 3, 1, 2).copy())
    found = dict(pixel_values=x)
    if "input_ids" in data:
        found["input_ids"] = torch.from_numpy(data["input_ids"])
    return found


def outputs(folder: pathlib.Path, data: dict) -> dict:
    """Return the outputs of the library with the drawn arrays."""
    config = json.loads((folder / "config.json").read_text())
    theirs = getattr(transformers, config["architectures"][0])
    model, report = theirs.from_pretrained(
        drawn(folder.parent.name) / folder.name, output_loading_info=True
    )
    print(folder.name, report)
    with torch.no_grad():
        return dict(model.eval()(**inputs(data, folder)))


def write(folder: pathlib.Path) -> None:
    """Write io.npz anew, with outputs of the names that it has."""
    data = dict(np.load(folder / "io.npz"))
    found = outputs(folder, data)
    for key in [k for k in data if k.startswith("out/")]:
        data[key] = found[key.removeprefix("out/")].numpy()
        print(" ", key, np.abs(data[key]).max(), data[key].std())
    np.savez_compressed(folder / "io.npz", **data)


def write_mvit(case: str) -> None:
    """Write numerics/CASE.io.npz anew."""
    path = HERE / "numerics" / f"{case}.io.npz"
    data = dict(np.load(path))
    config = json.loads(str(data["config"]))
    blocks = [mvit.MSBlockConfig(**row) for row in config["block_setting"]]
    sizes = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in config.items()
        if name.startswith(("patch", "spatial", "temporal", "num"))
    }
    model = mvit.MViT(
        block_setting=blocks,
        residual_pool=False,
        residual_with_cls_embed=False,
        rel_pos_embed=False,
        proj_after_attn=False,
        **sizes,
    ).eval()
    with np.load(drawn_checkpoint(case)) as arrays:
        state = {key: torch.from_numpy(arrays[key]) for key in arrays.files}
    model.load_state_dict(state)
    x = data["input"].reshape(len(data["input"]), -1, *data["input"].shape[-3:])
    with torch.no_grad():
        y = model(torch.from_numpy(x).permute(0, 4, 1, 2, 3)).numpy()
    print(case, np.abs(data["logits"]).max(), np.abs(y).max())
    np.savez_compressed(path, **data | dict(logits=y))


def write_roi_align() -> None:
    """Write numerics/roi_align.npz anew: boxes in maps of three sizes.

    With the settings of PySlowFast's ResNetRoIHead: 7 x 7 cells, aligned, and
    as many samples as a cell has pixels. The maps are drawn.
    """
    # Corners in shares of the map: of cells of more and of less than a pixel.
    boxes = np.array(
        [[0, 0, 1, 1], [0.1, 0.2, 0.35, 0.9], [0.77, 0.5, 1, 0.53], [0.5] * 4],
        "float32",
    )
    found = dict(boxes=boxes)
    for height, width in ((7, 7), (16, 24), (3, 40)):
        maps = np.random.default_rng(0).normal(size=(height, width, 3))
        cells = torchvision.ops.roi_align(
            torch.tensor(maps.transpose(2, 0, 1)[None], dtype=torch.float32),
            [torch.tensor(boxes * (width, height, width, height)).float()],
            7,
            sampling_ratio=-1,
            aligned=True,
        )
        found[f"{height}x{width}"] = cells.permute(0, 2, 3, 1).numpy()
    np.savez_compressed(HERE / "numerics" / "roi_align.npz", **found)


if __name__ == "__main__":
    write_roi_align()
    for kind in ("tasks", "towers"):
        for folder in (HERE / kind).iterdir():
            write(folder)
    for case in ("mvit_image", "mvit_video"):
        write_mvit(case)
