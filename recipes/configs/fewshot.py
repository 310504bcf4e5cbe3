"""Few-shot accuracy and k-NN of a frozen model.

fewshot.py                   digits with an untrained ViT: the baseline
fewshot.py:ViTB16,DATASET    the released weights that fine-tuning starts from

DATASET is the name of a data set in TensorFlow Datasets, a folder of images or
of videos, or an npz file.
"""

from keras_vit.weights import registry
from recipes import experiment, fewshot


def get_config(arguments: str = "ViT,digits") -> fewshot.Config:
    """Return the config of "MODEL,DATASET"."""
    model, dataset = experiment.model_and_dataset(
        arguments, "fewshot.py", "ViTB16,cifar10"
    )
    if model == "ViT":
        return fewshot.Config(data=fewshot.Data(dataset=dataset))
    config = fewshot.Config(
        model=fewshot.Model(name=model), data=fewshot.Data(dataset=dataset)
    )
    if entry := registry.default(model):
        config.model.weights = entry.name
        config.model.include_top = entry.classes is not None
    return config
