"""Results of the ViT paper for comparison with runs, in percent.

Source: Dosovitskiy et al. 2021, arXiv 2010.11929v2: Tables 2, 5, 6 and 9.
None marks results that the paper does not have.
"""

# The paper's names of data sets, by their names in TFDS.
DATASETS = {
    "imagenet2012": "ImageNet",
    "imagenet2012_real": "ImageNet ReaL",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "oxford_iiit_pet": "Oxford-IIIT Pets",
    "oxford_flowers102": "Oxford Flowers-102",
    "vtab": "VTAB (19 tasks)",
}

# Mean and standard deviation over three runs of fine-tuning.
TABLE_2: dict[str, dict] = {
    "ViT-H/14 (JFT)": {
        "imagenet2012": (88.55, 0.04),
        "imagenet2012_real": (90.72, 0.05),
        "cifar10": (99.50, 0.06),
        "cifar100": (94.55, 0.04),
        "oxford_iiit_pet": (97.56, 0.03),
        "oxford_flowers102": (99.68, 0.02),
        "vtab": (77.63, 0.23),
    },
    "ViT-L/16 (JFT)": {
        "imagenet2012": (87.76, 0.03),
        "imagenet2012_real": (90.54, 0.03),
        "cifar10": (99.42, 0.03),
        "cifar100": (93.90, 0.05),
        "oxford_iiit_pet": (97.32, 0.11),
        "oxford_flowers102": (99.74, 0.00),
        "vtab": (76.28, 0.46),
    },
    "ViT-L/16 (I21k)": {
        "imagenet2012": (85.30, 0.02),
        "imagenet2012_real": (88.62, 0.05),
        "cifar10": (99.15, 0.03),
        "cifar100": (93.25, 0.05),
        "oxford_iiit_pet": (94.67, 0.15),
        "oxford_flowers102": (99.61, 0.02),
        "vtab": (72.72, 0.21),
    },
    "BiT-L (ResNet152x4)": {
        "imagenet2012": (87.54, 0.02),
        "imagenet2012_real": (90.54, None),
        "cifar10": (99.37, 0.06),
        "cifar100": (93.51, 0.08),
        "oxford_iiit_pet": (96.62, 0.23),
        "oxford_flowers102": (99.63, 0.03),
        "vtab": (76.29, 1.70),
    },
    "Noisy Student (EfficientNet-L2)": {
        "imagenet2012": (88.4, None),
        "imagenet2012_real": (90.55, None),
    },
}

TABLE_5_MODELS = ("ViTB16", "ViTB32", "ViTL16", "ViTL32", "ViTH14")
# Pre-training, data set: top-1 accuracy of each of these models at 384 pixels.
TABLE_5 = {
    ("ImageNet", "cifar10"): (98.13, 97.77, 97.86, 97.94, None),
    ("ImageNet", "cifar100"): (87.13, 86.31, 86.35, 87.07, None),
    ("ImageNet", "imagenet2012"): (77.91, 73.38, 76.53, 71.16, None),
    ("ImageNet", "imagenet2012_real"): (83.57, 79.56, 82.19, 77.83, None),
    ("ImageNet", "oxford_flowers102"): (89.49, 85.43, 89.66, 86.36, None),
    ("ImageNet", "oxford_iiit_pet"): (93.81, 92.04, 93.64, 91.35, None),
    ("I21k", "cifar10"): (98.95, 98.79, 99.16, 99.13, 99.27),
    ("I21k", "cifar100"): (91.67, 91.97, 93.44, 93.04, 93.82),
    ("I21k", "imagenet2012"): (83.97, 81.28, 85.15, 80.99, 85.13),
    ("I21k", "imagenet2012_real"): (88.35, 86.63, 88.40, 85.65, 88.70),
    ("I21k", "oxford_flowers102"): (99.38, 99.11, 99.61, 99.19, 99.51),
    ("I21k", "oxford_iiit_pet"): (94.43, 93.02, 94.73, 93.09, 94.82),
    ("JFT", "cifar10"): (99.00, 98.61, 99.38, 99.19, 99.50),
    ("JFT", "cifar100"): (91.87, 90.49, 94.04, 92.52, 94.55),
    ("JFT", "imagenet2012"): (84.15, 80.73, 87.12, 84.37, 88.04),
    ("JFT", "imagenet2012_real"): (88.85, 86.27, 89.99, 88.28, 90.33),
    ("JFT", "oxford_flowers102"): (99.56, 99.27, 99.56, 99.45, 99.68),
    ("JFT", "oxford_iiit_pet"): (95.80, 93.40, 97.11, 95.83, 97.56),
}

TABLE_6_DATASETS = (
    "imagenet2012",
    "imagenet2012_real",
    "cifar10",
    "cifar100",
    "oxford_iiit_pet",
    "oxford_flowers102",
)
# Model, epochs on JFT-300M, accuracies on these sets, exaFLOPs of pre-training.
TABLE_6 = (
    ("ViT-B/32", 7, 80.73, 86.27, 98.61, 90.49, 93.40, 99.27, 55),
    ("ViT-B/16", 7, 84.15, 88.85, 99.00, 91.87, 95.80, 99.56, 224),
    ("ViT-L/32", 7, 84.37, 88.28, 99.19, 92.52, 95.83, 99.45, 196),
    ("ViT-L/16", 7, 86.30, 89.43, 99.38, 93.46, 96.81, 99.66, 783),
    ("ViT-L/16", 14, 87.12, 89.99, 99.38, 94.04, 97.11, 99.56, 1567),
    ("ViT-H/14", 14, 88.08, 90.36, 99.50, 94.71, 97.11, 99.71, 4262),
    ("ResNet50x1", 7, 77.54, 84.56, 97.67, 86.07, 91.11, 94.26, 50),
    ("ResNet50x2", 7, 82.12, 87.94, 98.29, 89.20, 93.43, 97.02, 199),
    ("ResNet101x1", 7, 80.67, 87.07, 98.48, 89.17, 94.08, 95.95, 96),
    ("ResNet152x1", 7, 81.88, 87.96, 98.82, 90.22, 94.17, 96.94, 141),
    ("ResNet152x2", 7, 84.97, 89.69, 99.06, 92.05, 95.37, 98.62, 563),
    ("ResNet152x2", 14, 85.56, 89.89, 99.24, 91.92, 95.75, 98.75, 1126),
    ("ResNet200x3", 14, 87.22, 90.15, 99.34, 93.53, 96.32, 99.04, 3306),
    ("R50x1+ViT-B/32", 7, 84.90, 89.15, 99.01, 92.24, 95.75, 99.46, 106),
    ("R50x1+ViT-B/16", 7, 85.58, 89.65, 99.14, 92.63, 96.65, 99.40, 274),
    ("R50x1+ViT-L/32", 7, 85.68, 89.04, 99.24, 92.93, 96.97, 99.43, 246),
    ("R50x1+ViT-L/16", 7, 86.60, 89.72, 99.18, 93.64, 97.03, 99.40, 859),
    ("R50x1+ViT-L/16", 14, 87.12, 89.76, 99.31, 93.89, 97.36, 99.11, 1668),
)

# The exaFLOPs that the first edition (2010.11929v1) prints for these rows.
# fmt: off
TABLE_6_FIRST_EDITION = (
    164, 743, 574, 2586, 5172, 12826,
    150, 592, 285, 427, 1681, 3362, 10212,
    315, 855, 725, 2704, 5165,
)
# fmt: on

# Position embedding: 5-shot ImageNet accuracy of a ViT-B/16 that adds it once,
# before the encoder.
TABLE_8 = {"none": 0.61382, "1-D": 0.64206, "2-D": 0.64001, "relative": 0.64032}

# The paper's names of the tasks of `keras_vit.data.vtab.TASKS`, in its order.
VTAB_TASKS = {
    "caltech101": "Caltech101",
    "cifar100": "CIFAR-100",
    "dtd": "DTD",
    "oxford_flowers102": "Flowers102",
    "oxford_iiit_pet": "Pets",
    "sun397": "Sun397",
    "svhn_cropped": "SVHN",
    "patch_camelyon": "Camelyon",
    "eurosat": "EuroSAT",
    "resisc45": "Resisc45",
    "diabetic_retinopathy": "Retinopathy",
    "clevr_count": "Clevr-Count",
    "clevr_distance": "Clevr-Dist",
    "dmlab": "DMLab",
    "dsprites_location": "dSpr-Loc",
    "dsprites_orientation": "dSpr-Ori",
    "kitti_distance": "KITTI-Dist",
    "smallnorb_azimuth": "sNORB-Azim",
    "smallnorb_elevation": "sNORB-Elev",
}
# fmt: off
TABLE_9 = {
    "ViT-H/14 (JFT)": (
        95.3, 85.5, 75.2, 99.7, 97.2, 65.0, 88.9, 83.3, 96.7, 91.4, 76.6,
        91.7, 63.8, 53.1, 79.4, 63.3, 84.5, 33.2, 51.2,
    ),
    "ViT-L/16 (JFT)": (
        95.4, 81.9, 74.3, 99.7, 96.7, 63.5, 87.4, 83.6, 96.5, 89.7, 77.1,
        86.4, 63.1, 49.7, 74.5, 60.5, 82.2, 36.2, 51.1,
    ),
    "ViT-L/16 (I21k)": (
        90.8, 84.1, 74.1, 99.3, 92.7, 61.0, 80.9, 82.5, 95.6, 85.2, 75.3,
        70.3, 56.1, 41.9, 74.7, 64.9, 79.9, 30.5, 41.7,
    ),
}
# fmt: on
