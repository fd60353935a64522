"""One line turns an Opacus run into a run with any registered noise source; needs ``pip install 'dpaudit[opacus]'``."""

from dpaudit.hosts.opacus.attach import use_noise_source
from dpaudit.hosts.opacus.model import check_model
from dpaudit.hosts.opacus.release import Release

__all__ = ["Release", "check_model", "use_noise_source"]
