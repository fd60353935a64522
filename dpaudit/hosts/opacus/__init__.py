"""One line turns an Opacus run into a run with any registered noise source; needs ``pip install 'dpaudit[opacus]'``."""

from dpaudit.hosts.opacus.attach import check_model, use_noise_source
from dpaudit.hosts.opacus.draw import Release

__all__ = ["Release", "check_model", "use_noise_source"]
