# synthcity imports all of its neural networks with any plugin. PrivBayes needs none, and their
# libraries (monai, tsai, torchvision and others) are gigabytes: here they are empty modules.
import importlib.abc
import importlib.machinery
import sys
from unittest.mock import MagicMock

ABSENT = ("monai", "tsai", "torchvision", "fastai", "geomloss", "pykeops", "nflows", "fflows", "be_great",
          "arfpy", "shap", "redis", "pycox", "xgbse", "decaf", "torchtuples", "networks", "pytorch_lightning",
          "google")  # fmt: skip


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__all__ = [], spec, []
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Empty())
