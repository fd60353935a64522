"""Training images: MNIST and CIFAR-10 from files or a checked download, or synthetic ones."""

from dpaudit.training.data.images import Images
from dpaudit.training.data.loading import DATASETS, load_images
from dpaudit.training.data.places import fetch_file, find_file

__all__ = ["DATASETS", "Images", "fetch_file", "find_file", "load_images"]
